//! The grammar of `#[record(…)]`, on a struct and on a field. Names of columns are only read here; `row`
//! resolves them.
//!
//! What becomes a name in Rust (an index's constant, a check's function) can be written with or without
//! quotation marks. Without them is better: an editor can follow the name. Clippy also takes the second of two
//! unique indexes for a repeated attribute if everything in the attribute is a word, a list or a literal.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, Ident, LitInt, LitStr, Path, Result, Token, parenthesized, token,
};

/// The options on a struct.
#[derive(Default)]
pub(crate) struct StructOptions {
    pub table: Option<LitStr>,
    pub storage: Option<Storage>,
    pub key: Option<KeyOption>,
    pub indexes: Vec<IndexOption>,
    pub checks: Vec<CheckOption>,
    pub volatile: Option<()>,
    pub was: Vec<String>,
    pub dropped: Vec<String>,
    pub migrate: Option<Path>,
    pub expires: Option<ExpiresOption>,
}

/// The option `expires = column`, or `expires(column, hook)`.
pub(crate) struct ExpiresOption {
    pub column: Ident,
    pub has_hook: bool,
}

/// The storage of a table, as `weft::schema::Storage`.
#[derive(Clone, Copy)]
pub(crate) enum Storage {
    Ordered,
    Hash,
}

/// The option `key(a, b)`.
pub(crate) struct KeyOption {
    pub span: Span,
    pub columns: Vec<Ident>,
}

/// The option `index(name = by_a, columns(a, b), unique)`.
pub(crate) struct IndexOption {
    pub name: Ident,
    pub columns: Vec<Ident>,
    pub unique: bool,
}

/// The option `check = path`, or `check(path, columns(a, b))`.
pub(crate) struct CheckOption {
    pub path: Path,
    /// The columns that the check reads, if not the whole row.
    pub columns: Option<Vec<Ident>>,
}

/// The option `min = 0`, or `max = 9`.
pub(crate) struct BoundOption {
    pub number: i128,
    /// The number as it is written.
    pub literal: TokenStream,
    pub span: Span,
}

/// The options on a field, each with the place where it is given.
#[derive(Default)]
pub(crate) struct FieldOptions {
    pub key: Option<Span>,
    pub generated: Option<Span>,
    pub index: Option<Span>,
    pub unique: Option<Span>,
    pub default: Option<DefaultOption>,
    pub was: Vec<String>,
    pub computed: Option<Path>,
    pub min: Option<BoundOption>,
    pub max: Option<BoundOption>,
}

/// The options on a field of a struct that is a column's type.
#[derive(Default)]
pub(crate) struct PartOptions {
    pub default: Option<DefaultOption>,
    pub was: Vec<String>,
}

/// The option `default = 0`.
pub(crate) struct DefaultOption {
    pub span: Span,
    pub value: Expr,
}

impl StructOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<StructOptions> {
        let mut options = StructOptions::default();
        for_each_option(attributes, "record", |option| options.parse_option(&option))?;
        Ok(options)
    }

    fn parse_option(&mut self, option: &ParseNestedMeta<'_>) -> Result<()> {
        if option.path.is_ident("table") {
            let table = option.value()?.parse::<LitStr>()?;
            if table.value().is_empty() {
                return Err(Error::new(table.span(), "a table's name cannot be empty"));
            }
            set_once(&mut self.table, table, option)
        } else if option.path.is_ident("storage") {
            set_once(&mut self.storage, parse_storage(option)?, option)
        } else if option.path.is_ident("key") {
            let columns = parse_columns(option, "key")?;
            let span = option.path.get_ident().expect("checked above").span();
            set_once(&mut self.key, KeyOption { span, columns }, option)
        } else if option.path.is_ident("index") {
            self.indexes.push(parse_index(option)?);
            Ok(())
        } else if option.path.is_ident("check") {
            self.checks.push(parse_check(option)?);
            Ok(())
        } else if option.path.is_ident("was") {
            self.was.push(parse_was(option)?);
            Ok(())
        } else if option.path.is_ident("dropped") {
            self.dropped.append(&mut parse_dropped(option)?);
            Ok(())
        } else if option.path.is_ident("migrate") {
            set_once(&mut self.migrate, parse_path(option)?, option)
        } else if option.path.is_ident("expires") {
            set_once(&mut self.expires, parse_expires(option)?, option)
        } else if option.path.is_ident("volatile") {
            if option.input.peek(Token![=]) || option.input.peek(token::Paren) {
                return Err(option.error("`volatile` takes no arguments"));
            }
            set_once(&mut self.volatile, (), option)
        } else if option.path.is_ident("unique") {
            Err(option.error(
                "`unique` on a struct belongs to an index: `index(name = …, columns(…), unique)`",
            ))
        } else {
            let allowed = "`key`, `table`, `storage`, `index`, `check`, `expires`, `volatile`, `was`, \
                           `dropped` or `migrate`";
            Err(unknown(option, "a struct", allowed))
        }
    }
}

impl FieldOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<FieldOptions> {
        let mut options = FieldOptions::default();
        for_each_option(attributes, "record", |option| options.parse_option(&option))?;
        Ok(options)
    }

    fn parse_option(&mut self, option: &ParseNestedMeta<'_>) -> Result<()> {
        let (place, name) = if option.path.is_ident("key") {
            (&mut self.key, "key")
        } else if option.path.is_ident("generated") {
            (&mut self.generated, "generated")
        } else if option.path.is_ident("index") {
            (&mut self.index, "index")
        } else if option.path.is_ident("unique") {
            (&mut self.unique, "unique")
        } else if option.path.is_ident("default") {
            let default = parse_default(option)?;
            return set_once(&mut self.default, default, option);
        } else if option.path.is_ident("was") {
            self.was.push(parse_was(option)?);
            return Ok(());
        } else if option.path.is_ident("computed") {
            return set_once(&mut self.computed, parse_path(option)?, option);
        } else if option.path.is_ident("min") {
            return set_once(&mut self.min, parse_bound(option)?, option);
        } else if option.path.is_ident("max") {
            return set_once(&mut self.max, parse_bound(option)?, option);
        } else {
            let allowed = "`key`, `generated`, `index`, `unique`, `default`, `was`, `computed`, `min` or `max`";
            return Err(unknown(option, "a field", allowed));
        };
        if !option.input.is_empty() && !option.input.peek(Token![,]) {
            return Err(option.error(format!(
                "`{name}` on a field takes no arguments; what needs some is declared on the struct"
            )));
        }
        let span = option.path.get_ident().expect("checked above").span();
        set_once(place, span, option)
    }
}

impl PartOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<PartOptions> {
        let mut options = PartOptions::default();
        for_each_option(attributes, "column", |option| {
            if option.path.is_ident("default") {
                set_once(&mut options.default, parse_default(&option)?, &option)
            } else if option.path.is_ident("was") {
                options.was.push(parse_was(&option)?);
                Ok(())
            } else {
                Err(unknown(&option, "a field of a column's type", "`default` or `was`"))
            }
        })?;
        Ok(options)
    }
}

fn for_each_option(
    attributes: &[Attribute],
    name: &str,
    mut parse_option: impl FnMut(ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(name))
        .try_for_each(|attribute| attribute.parse_nested_meta(&mut parse_option))
}

fn set_once<T>(place: &mut Option<T>, value: T, option: &ParseNestedMeta<'_>) -> Result<()> {
    if place.replace(value).is_some() {
        let name = name_of(option);
        return Err(option.error(format!("`{name}` is given twice")));
    }
    Ok(())
}

fn unknown(option: &ParseNestedMeta<'_>, place: &str, allowed: &str) -> Error {
    let name = name_of(option);
    option.error(format!("unknown option `{name}` on {place}: expected {allowed}"))
}

fn name_of(option: &ParseNestedMeta<'_>) -> String {
    let segments: Vec<_> = option.path.segments.iter().map(|it| it.ident.to_string()).collect();
    segments.join("::")
}

fn parse_storage(option: &ParseNestedMeta<'_>) -> Result<Storage> {
    let name = option.value()?.parse::<LitStr>()?;
    match name.value().as_str() {
        "ordered" => Ok(Storage::Ordered),
        "hash" => Ok(Storage::Hash),
        other => Err(Error::new(
            name.span(),
            format!("unknown storage `{other}`: expected \"ordered\" or \"hash\""),
        )),
    }
}

/// Parses an expression, after `option`'s name.
fn parse_default(option: &ParseNestedMeta<'_>) -> Result<DefaultOption> {
    if !option.input.peek(Token![=]) {
        return Err(option.error("say which value: `default = 0`, or `default = String::new()`"));
    }
    let value = option.value()?.parse::<Expr>()?;
    Ok(DefaultOption { span: value.span(), value })
}

/// Parses an integer, after `option`'s name.
fn parse_bound(option: &ParseNestedMeta<'_>) -> Result<BoundOption> {
    let name = name_of(option);
    if !option.input.peek(Token![=]) {
        return Err(option.error(format!("say which number: `{name} = 0`")));
    }
    let value = option.value()?;
    let span = value.span();
    let minus = value.parse::<Option<Token![-]>>()?;
    let Ok(literal) = value.parse::<LitInt>() else {
        let message = format!("a bound is an integer, written as a number: `{name} = 0`");
        return Err(Error::new(span, message));
    };
    let sign = if minus.is_some() { "-" } else { "" };
    let number = format!("{sign}{}", literal.base10_digits());
    let number = number.parse().map_err(|error| Error::new(span, error))?;
    Ok(BoundOption { number, literal: quote!(#minus #literal), span })
}

/// Parses a check, after `option`'s name.
fn parse_check(option: &ParseNestedMeta<'_>) -> Result<CheckOption> {
    if !option.input.peek(token::Paren) {
        return Ok(CheckOption { path: parse_path(option)?, columns: None });
    }
    let content;
    parenthesized!(content in option.input);
    let path = content.parse::<Path>()?;
    let usage = "name the columns that the check reads: `check(path, columns(…, …))`";
    let mut columns = None;
    if content.parse::<Option<Token![,]>>()?.is_some() && content.peek(Ident::peek_any) {
        let name = content.call(Ident::parse_any)?;
        if name == "columns" && content.peek(token::Paren) {
            let names;
            parenthesized!(names in content);
            let names =
                Punctuated::<_, Token![,]>::parse_terminated_with(&names, Ident::parse_any)?;
            columns = Some(names.into_iter().collect::<Vec<_>>());
        }
    }
    match columns {
        Some(columns) if !columns.is_empty() && content.is_empty() => {
            Ok(CheckOption { path, columns: Some(columns) })
        }
        _ => Err(Error::new(path.span(), usage)),
    }
}

/// Parses `(a, b)`, after `option`'s name.
fn parse_columns(option: &ParseNestedMeta<'_>, name: &str) -> Result<Vec<Ident>> {
    if !option.input.peek(token::Paren) {
        return Err(option.error(format!("name the columns: `{name}(…, …)`")));
    }
    let content;
    parenthesized!(content in option.input);
    let columns = Punctuated::<_, Token![,]>::parse_terminated_with(&content, Ident::parse_any)?;
    if columns.is_empty() {
        return Err(option.error(format!("`{name}` needs at least one column")));
    }
    Ok(columns.into_iter().collect())
}

fn parse_index(option: &ParseNestedMeta<'_>) -> Result<IndexOption> {
    let mut name = None;
    let mut columns = None;
    let mut unique = None;
    if !option.input.peek(token::Paren) {
        return Err(option.error("describe the index: `index(name = …, columns(…, …))`"));
    }
    option.parse_nested_meta(|part| {
        if part.path.is_ident("name") {
            set_once(&mut name, parse_index_name(&part)?, &part)
        } else if part.path.is_ident("columns") {
            set_once(&mut columns, parse_columns(&part, "columns")?, &part)
        } else if part.path.is_ident("unique") {
            set_once(&mut unique, (), &part)
        } else {
            Err(unknown(&part, "an index", "`name`, `columns` or `unique`"))
        }
    })?;
    let name = name.ok_or_else(|| option.error("an index needs a name: `name = by_…`"))?;
    let columns = columns.ok_or_else(|| option.error("an index needs columns: `columns(…, …)`"))?;
    Ok(IndexOption { name, columns, unique: unique.is_some() })
}

/// Parses an identifier, with or without quotation marks.
fn parse_index_name(option: &ParseNestedMeta<'_>) -> Result<Ident> {
    let value = option.value()?;
    if !value.peek(LitStr) {
        return value.call(Ident::parse_any);
    }
    let text = value.parse::<LitStr>()?;
    text.parse_with(Ident::parse_any).map_err(|_| {
        let message = format!(
            "an index needs a name like a column's, because a constant is named after it, and {:?} is not \
             one: use letters, digits and `_`",
            text.value()
        );
        Error::new(text.span(), message)
    })
}

/// Parses a path, with or without quotation marks.
fn parse_path(option: &ParseNestedMeta<'_>) -> Result<Path> {
    let value = option.value()?;
    if !value.peek(LitStr) {
        return Path::parse(value);
    }
    let text = value.parse::<LitStr>()?;
    text.parse().map_err(|_| {
        let name = name_of(option);
        let message = format!("expected the path of a function: `{name} = Customer::{name}`");
        Error::new(text.span(), message)
    })
}

/// Parses `= column`, or `(column, hook)`, after `option`'s name.
fn parse_expires(option: &ParseNestedMeta<'_>) -> Result<ExpiresOption> {
    if option.input.peek(Token![=]) {
        return Ok(ExpiresOption { column: parse_index_name(option)?, has_hook: false });
    }
    let usage = "say which column: `expires = column`, or `expires(column, hook)` if a hook runs when a row has expired";
    if !option.input.peek(token::Paren) {
        return Err(option.error(usage));
    }
    let content;
    parenthesized!(content in option.input);
    let words = Punctuated::<Ident, Token![,]>::parse_terminated_with(&content, Ident::parse_any)?;
    let mut words = words.into_iter();
    match (words.next(), words.next(), words.next()) {
        (Some(column), Some(hook), None) if hook == "hook" => {
            Ok(ExpiresOption { column, has_hook: true })
        }
        _ => Err(option.error(usage)),
    }
}

/// Parses a former name.
fn parse_was(option: &ParseNestedMeta<'_>) -> Result<String> {
    if !option.input.peek(Token![=]) {
        return Err(option.error("say which name it had: `was = \"…\"`"));
    }
    Ok(option.value()?.parse::<LitStr>()?.value())
}

/// Parses `(a, b.c, "d")`, the names of what was dropped.
fn parse_dropped(option: &ParseNestedMeta<'_>) -> Result<Vec<String>> {
    if !option.input.peek(token::Paren) {
        return Err(option.error(
            "name what was dropped: `dropped(column, column.field, by_index, \"Row::check\")`",
        ));
    }
    let content;
    parenthesized!(content in option.input);
    let names = Punctuated::<String, Token![,]>::parse_terminated_with(&content, |input| {
        if input.peek(LitStr) {
            return Ok(input.parse::<LitStr>()?.value());
        }
        let parts =
            Punctuated::<Ident, Token![.]>::parse_separated_nonempty_with(input, Ident::parse_any)?;
        let parts: Vec<String> = parts.iter().map(|part| part.unraw().to_string()).collect();
        Ok(parts.join("."))
    })?;
    Ok(names.into_iter().collect())
}
