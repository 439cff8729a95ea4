//! SVG files, written element by element.

use std::fmt::{self, Write};

/// An SVG file under construction.
pub struct Svg(String);

impl Svg {
    /// Begins a white picture of this size, in pixels, with this font size.
    pub fn new((width, height): (f64, f64), font_size: u32) -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
             font-size=\"{font_size}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    /// Adds a line of text that begins at a point, unless `attributes` align it otherwise.
    pub fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) {
        let text = Escaped(text);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>"));
    }

    /// Adds a shape, such as a `path`. If `title` is not empty, it is shown when the pointer rests on the shape.
    pub fn shape(&mut self, name: &str, attributes: fmt::Arguments<'_>, title: &str) {
        match Escaped(title) {
            Escaped("") => self.add(format_args!("<{name} {attributes}/>")),
            title => self.add(format_args!("<{name} {attributes}><title>{title}</title></{name}>")),
        }
    }

    /// Adds a complete element.
    pub fn add(&mut self, element: fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("writing to a string cannot fail");
    }

    /// Returns the complete file.
    pub fn finish(mut self) -> String {
        self.add(format_args!("</svg>"));
        self.0
    }
}

/// Text in which markup is escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '\n' => formatter.write_str("; ")?,
                other => write!(formatter, "{other}")?,
            }
        }
        Ok(())
    }
}

/// Checks in tests that every tag of a picture is closed, and that all numbers are finite.
///
/// # Panics
/// A tag is not closed, or a number is not finite.
pub fn assert_is_sound(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    let closed = 2 * svg.matches("</").count() + svg.matches("/>").count();
    assert_eq!(svg.matches('<').count(), closed, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup_and_tags_are_closed() {
        let mut svg = Svg::new((100.0, 50.0), 12);
        svg.text((1.0, 2.25), "fill=\"red\"", "A < B\n& C");
        svg.shape("path", format_args!("d=\"M0 0H{}\"", 5), "");
        svg.shape("rect", format_args!("width=\"1\""), "a>b");
        let svg = svg.finish();
        assert_is_sound(&svg);
        let lines: Vec<&str> = svg.lines().collect();
        assert_eq!(
            lines[2..5],
            [
                "<text x=\"1.0\" y=\"2.2\" fill=\"red\">A &lt; B; &amp; C</text>",
                "<path d=\"M0 0H5\"/>",
                "<rect width=\"1\"><title>a&gt;b</title></rect>",
            ]
        );
    }
}
