//! The library `bit`: operations on integers of 32 bits.

use mlua::{Lua, Table, Variadic};

/// Creates the library.
pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let add = |name: &str, operation: fn(u32, u32) -> u32| {
        let shift = move |_: &Lua, (number, by): (f64, f64)| {
            Ok(signed(operation(bits_of(number), bits_of(by) & 31)))
        };
        library.raw_set(name, lua.create_function(shift)?)
    };
    add("lshift", |number, by| number << by)?;
    add("rshift", |number, by| number >> by)?;
    add("arshift", |number, by| (number.cast_signed() >> by).cast_unsigned())?;
    add("rol", u32::rotate_left)?;
    add("ror", u32::rotate_right)?;
    let fold = |name: &str, operation: fn(u32, u32) -> u32| {
        let fold = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
            Ok(signed(rest.iter().map(|number| bits_of(*number)).fold(bits_of(first), operation)))
        };
        library.raw_set(name, lua.create_function(fold)?)
    };
    fold("band", |one, other| one & other)?;
    fold("bor", |one, other| one | other)?;
    fold("bxor", |one, other| one ^ other)?;
    let change = |name: &str, operation: fn(u32) -> u32| {
        let change = move |_: &Lua, number: f64| Ok(signed(operation(bits_of(number))));
        library.raw_set(name, lua.create_function(change)?)
    };
    change("tobit", |number| number)?;
    change("bnot", |number| !number)?;
    change("bswap", u32::swap_bytes)?;
    library.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(library)
}

/// Returns the lowest 32 bits of a number, rounded as the library does it.
fn bits_of(number: f64) -> u32 {
    number.round_ties_even().rem_euclid(4_294_967_296.0) as u32
}

fn signed(bits: u32) -> f64 {
    bits.cast_signed().into()
}

/// `bit.tohex`: so many digits, in capitals if the number is below zero.
fn to_hex(_: &Lua, (number, digits): (f64, Option<f64>)) -> mlua::Result<String> {
    let digits = digits.unwrap_or(8.0);
    let text = format!("{:08x}", bits_of(number));
    let text = &text[8 - (digits.abs() as usize).min(8)..];
    Ok(if digits < 0.0 { text.to_uppercase() } else { text.to_owned() })
}
