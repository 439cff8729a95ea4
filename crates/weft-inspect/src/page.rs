//! The page, as one HTML file that loads nothing else.

use crate::Report;

/// The page. It follows the server from which it was loaded.
const PAGE: &str = include_str!("page.html");

/// Where the page has recorded reports.
const RECORDED: &str = "<script id=\"recorded\" type=\"application/json\">null</script>";

/// The element that says whether the server needs a token.
#[cfg(feature = "serve")]
const ROOT: &str = "<html lang=\"en\">";

/// Returns the page that follows the server. If the server needs a token, the page asks for it.
#[cfg(feature = "serve")]
pub(crate) fn live(needs_token: bool) -> String {
    match needs_token {
        false => PAGE.to_owned(),
        true => PAGE.replacen(ROOT, &ROOT.replace('>', " data-token>"), 1),
    }
}

/// Returns the page with reports inside, the oldest first, and with notes to show above them. It needs no server, and can
/// be kept or sent as a file.
pub fn of_recorded<'r>(reports: impl Iterator<Item = &'r Report>, notes: &[String]) -> String {
    let reports: Vec<_> = reports.collect();
    let recorded = serde_json::json!({"reports": reports, "notes": notes}).to_string();
    // No text in the reports can end the element.
    let recorded = recorded.replace('<', "\\u003c");
    PAGE.replacen(RECORDED, &RECORDED.replace("null", &recorded), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_text_cannot_end_its_element() {
        let report = Report { protocol: "</script><b>".to_owned(), ..Report::default() };
        let page = of_recorded([&report].into_iter(), &["<i>".to_owned()]);
        assert!(page.contains(r#""protocol":"\u003c/script>\u003cb>""#));
        assert!(!page.contains("<i>") && !page.contains(RECORDED));
    }

    #[cfg(feature = "serve")]
    #[test]
    fn the_page_asks_for_a_token_if_there_is_one() {
        assert!(live(true).contains("data-token>") && !live(false).contains("data-token>"));
    }
}
