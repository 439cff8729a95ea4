//! Commands on scripts.

use super::unknown_subcommand;
use crate::call::{Call, is};
use crate::reply::Reply;
use crate::scripts::Origin::{Evaluated, Loaded};
use crate::scripts::{self, Digest, Program, Script, digest, hex};
use crate::session::Session;
use crate::stop::{Done, Stop};

/// The keys of a call, and its other arguments.
type KeysAndArguments<'c> = (&'c [&'c [u8]], &'c [&'c [u8]]);

/// Returns the keys, whose number is an argument, and the arguments after them. `wrong` is the error if the
/// argument is no number.
pub fn keys_and_arguments<'c>(
    call: &Call<'c>,
    wrong: Option<&'static str>,
) -> Done<KeysAndArguments<'c>> {
    let count = call.integer(2).map_err(|stop| wrong.map_or(stop, Stop::from))?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    let rest = call.rest(3);
    rest.split_at_checked(count)
        .ok_or_else(|| "ERR Number of keys can't be greater than number of args".into())
}

fn run(call: &Call<'_>, script: &Script, is_read_only: bool, reply: &mut Reply) -> Done {
    let (keys, arguments) = keys_and_arguments(call, None)?;
    let is_read_only = is_read_only || script.is_read_only;
    scripts::run(call, Program::Script(script), keys, arguments, is_read_only, reply)
}

fn evaluate(call: &Call<'_>, is_read_only: bool, reply: &mut Reply) -> Done {
    let code = call.argument(1);
    let sources = &call.caller.server.scripts.sources;
    let digest = digest(code);
    let script = match sources.get(&digest) {
        Some(script) => script,
        None => sources.add(code, digest, Evaluated)?,
    };
    run(call, &script, is_read_only, reply)
}

/// Returns the SHA-1 that an argument is.
fn digest_of(argument: &[u8]) -> Option<Digest> {
    let mut digest = Digest::default();
    if argument.len() != 2 * digest.len() {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    for (byte, digits) in digest.iter_mut().zip(argument.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(digest)
}

fn evaluate_known(call: &Call<'_>, is_read_only: bool, reply: &mut Reply) -> Done {
    let script = digest_of(call.argument(1));
    let script = script.and_then(|digest| call.caller.server.scripts.sources.get(&digest));
    let script = script.ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
    run(call, &script, is_read_only, reply)
}

/// `EVAL`
pub fn eval(call: &Call<'_>, reply: &mut Reply) -> Done {
    evaluate(call, false, reply)
}

/// `EVAL_RO`
pub fn eval_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    evaluate(call, true, reply)
}

/// `EVALSHA`
pub fn evalsha(call: &Call<'_>, reply: &mut Reply) -> Done {
    evaluate_known(call, false, reply)
}

/// `EVALSHA_RO`
pub fn evalsha_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    evaluate_known(call, true, reply)
}

/// Checks the option of `SCRIPT FLUSH` and `FUNCTION FLUSH`, which makes no difference here. `text` is the error.
pub fn check_flush(rest: &[&[u8]], text: &'static str) -> Done {
    match rest {
        [] => Ok(()),
        [word] if is(word, "sync") || is(word, "async") => Ok(()),
        _ => Err(text.into()),
    }
}

/// `SCRIPT`
pub fn script(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let scripts = &session.server.scripts;
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"load", [code]) => {
            let digest = digest(code);
            scripts::check(&Script::new(code, digest)?)?;
            scripts.sources.add(code, digest, Loaded)?;
            reply.text(hex(&digest));
        }
        (b"exists", digests @ [_, ..]) => {
            reply.array(digests.len());
            for digest in digests {
                let digest = digest_of(digest);
                reply.flag(digest.is_some_and(|digest| scripts.sources.get(&digest).is_some()));
            }
        }
        (b"flush", rest) => {
            check_flush(rest, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
            scripts.sources.flush();
            reply.ok();
        }
        (b"kill", []) => {
            scripts.kill()?;
            reply.ok();
        }
        (b"help", []) => super::introspection::help(
            reply,
            &[
                "SCRIPT LOAD <script>",
                "SCRIPT EXISTS <sha1> ...",
                "SCRIPT FLUSH [ASYNC|SYNC]",
                "SCRIPT KILL",
            ],
        ),
        _ => return Err(unknown_subcommand(arguments, "SCRIPT").into()),
    }
    Ok(())
}
