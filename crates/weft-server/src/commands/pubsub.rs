//! Publish/subscribe.

use super::unknown_subcommand;
use crate::call::Call;
use crate::effects::Topic;
use crate::glob;
use crate::publish::Subscriptions;
use crate::reply::Reply;
use crate::session::Session;
use crate::stop::Done;

/// `PUBLISH`
pub fn publish(call: &Call<'_>, reply: &mut Reply) -> Done {
    publish_to(call, reply, Topic::Channel)
}

/// `SPUBLISH`
pub fn spublish(call: &Call<'_>, reply: &mut Reply) -> Done {
    publish_to(call, reply, Topic::Shard)
}

/// Notes a message, if any client would get it.
fn publish_to(call: &Call<'_>, reply: &mut Reply, topic: Topic) -> Done {
    let (channel, payload) = (call.argument(1), call.argument(2));
    let receivers = call.caller.server.publish.receivers(topic, channel);
    if receivers > 0 {
        call.effects.publish(topic, channel, payload);
    }
    reply.count(receivers);
    Ok(())
}

/// `SUBSCRIBE`
pub fn subscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    begin(session, arguments, reply, Topic::Channel, "subscribe")
}

/// `PSUBSCRIBE`
pub fn psubscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    begin(session, arguments, reply, Topic::Pattern, "psubscribe")
}

/// `SSUBSCRIBE`
pub fn ssubscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    begin(session, arguments, reply, Topic::Shard, "ssubscribe")
}

fn begin(
    session: &mut Session,
    arguments: &[&[u8]],
    reply: &mut Reply,
    topic: Topic,
    word: &str,
) -> Done {
    let mailbox = session.open_mailbox(reply.version());
    let server = &session.server;
    let subscriptions = session
        .subscriptions
        .get_or_insert_with(|| Box::new(Subscriptions::new(session.client.id, mailbox)));
    for name in &arguments[1..] {
        server.publish.subscribe(subscriptions, topic, name);
        confirm(reply, word, Some(name), subscriptions.count(topic));
    }
    session.check_subscriptions();
    Ok(())
}

fn confirm(reply: &mut Reply, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push_header(3);
    reply.text(word);
    reply.optional(name);
    reply.count(count);
}

/// `UNSUBSCRIBE`
pub fn unsubscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    end(session, arguments, reply, Topic::Channel, "unsubscribe")
}

/// `PUNSUBSCRIBE`
pub fn punsubscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    end(session, arguments, reply, Topic::Pattern, "punsubscribe")
}

/// `SUNSUBSCRIBE`
pub fn sunsubscribe(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    end(session, arguments, reply, Topic::Shard, "sunsubscribe")
}

fn end(
    session: &mut Session,
    arguments: &[&[u8]],
    reply: &mut Reply,
    topic: Topic,
    word: &str,
) -> Done {
    let given = &arguments[1..];
    let Some(mut subscriptions) = session.subscriptions.take() else {
        match given {
            [] => confirm(reply, word, None, 0),
            names => names.iter().for_each(|name| confirm(reply, word, Some(name), 0)),
        }
        return Ok(());
    };
    let all: Vec<_> = match given {
        [] => subscriptions.names(topic).iter().cloned().collect(),
        names => names.iter().map(|name| (*name).into()).collect(),
    };
    if all.is_empty() {
        confirm(reply, word, None, subscriptions.count(topic));
    }
    for name in all {
        session.server.publish.unsubscribe(&mut subscriptions, topic, &name);
        // The messages of the channel come before the confirmation that there are no more of them.
        session.token = session.token.max(subscriptions.mailbox.take(reply));
        confirm(reply, word, Some(&name), subscriptions.count(topic));
    }
    if !subscriptions.is_empty() {
        session.subscriptions = Some(subscriptions);
    }
    Ok(())
}

/// `PUBSUB`
pub fn pubsub(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let publish = &session.server.publish;
    let name = arguments[1].to_ascii_lowercase();
    let topic = if name.starts_with(b"shard") { Topic::Shard } else { Topic::Channel };
    match (name.as_slice(), &arguments[2..]) {
        (b"channels" | b"shardchannels", pattern @ ([] | [_])) => {
            let mut names = publish.subscribed(topic);
            names.retain(|(name, _)| pattern.first().is_none_or(|p| glob::matches(p, name)));
            reply.texts(names.iter().map(|(name, _)| name));
        }
        (b"numsub" | b"shardnumsub", names) => {
            reply.array(2 * names.len());
            for name in names {
                reply.text(name);
                reply.count(publish.count(topic, name));
            }
        }
        (b"help", []) => super::introspection::help(
            reply,
            &[
                "PUBSUB CHANNELS [<pattern>] | SHARDCHANNELS [<pattern>]",
                "    The channels that have subscribers.",
                "PUBSUB NUMSUB [<channel> ...] | SHARDNUMSUB [<channel> ...]",
                "    The number of subscribers of each channel, without those of patterns.",
                "PUBSUB NUMPAT",
                "    The number of patterns that have subscribers.",
            ],
        ),
        (b"numpat", []) => reply.count(publish.subscribed(Topic::Pattern).len()),
        _ => return Err(unknown_subcommand(arguments, "PUBSUB").into()),
    }
    Ok(())
}
