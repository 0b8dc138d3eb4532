//! Ink on paper: the few SVG elements that every figure is made of.
//!
//! A figure is used in three places - inside the HTML report, inside a book page with a theme of its own,
//! and as a file - so it carries its style with it. Colours belong to meanings ([`Ink`]): a class sets
//! `color`, shapes take `currentColor`, and `light-dark()` follows the scheme of the page around it or, in
//! a file of its own, the reader's. The hues are those of Okabe and Ito, which remain apart for every
//! common colour blindness (M. Okabe, K. Ito, "Color Universal Design", 2008); a meaning also has a shape
//! of its own, so that nothing is told by colour alone. There are no ids, and every class begins with
//! `wb-`: any number of figures share a page with any style sheet.

use std::fmt::Write as _;

/// What a stroke, a mark or a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Words and values.
    Text,
    /// A heading.
    Strong,
    /// Units, ticks and explanations.
    Quiet,
    /// Grid lines and empty tracks.
    Grid,
    /// The in-repo baseline: a diamond.
    Baseline,
    /// The attempt that is graded: a disc.
    Attempt,
    /// The machine's own limit: an upright bar.
    Bound,
    /// A published threshold: a dashed line.
    Threshold,
    /// What a launch does.
    Step(StepKind),
    /// What a rank does with a layer, or with all of its layers.
    Pass(Pass),
    /// What bytes of a rank are for.
    Share(Share),
    /// Characters as they stand in a text, each as wide as the others: [`CODE`] units.
    Code,
    /// A number beneath one of them.
    Id,
}

/// The kinds of work in a compiled step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepKind {
    /// A product of matrices.
    Product,
    /// A tile program: whatever was fused.
    Program,
    /// An attention, or its gradients.
    Attention,
    /// A dequantisation.
    Dequantise,
    /// Rows looked up, or added up in a table.
    Scatter,
    /// The update of what is trained.
    Optimiser,
}

impl StepKind {
    /// All of them.
    pub const ALL: [StepKind; 6] =
        [Self::Product, Self::Program, Self::Attention, Self::Dequantise, Self::Scatter, Self::Optimiser];

    /// Several launches of it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Product => "products",
            Self::Program => "programs",
            Self::Attention => "attentions",
            Self::Dequantise => "dequantisations",
            Self::Scatter => "scatters",
            Self::Optimiser => "optimiser programs",
        }
    }

    /// As measurements call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Program => "program",
            Self::Attention => "attention",
            Self::Dequantise => "dequantise",
            Self::Scatter => "scatter",
            Self::Optimiser => "optimiser",
        }
    }
}

/// What a rank does with its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Gets weights: it gathers or dequantises them.
    Fetch,
    /// The forward.
    Forward,
    /// Computes again what the forward did not keep.
    Recompute,
    /// The gradient of the input.
    Backward,
    /// The gradient of what is trained, or its update.
    Weight,
}

impl Pass {
    /// All of them.
    pub const ALL: [Pass; 5] = [Self::Fetch, Self::Forward, Self::Recompute, Self::Backward, Self::Weight];
}

/// What bytes of a rank are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// Its shards of frozen weights.
    Weights,
    /// Its shards of what is trained, with gradients and moments.
    Trained,
    /// Whole parts that are gathered.
    Gathered,
    /// What the forward keeps.
    Activations,
    /// What a program works in.
    Arena,
    /// Anything else.
    Rest,
}

impl Share {
    /// All of them, from what more ranks make less of to what they do not.
    pub const ALL: [Share; 6] =
        [Self::Weights, Self::Trained, Self::Gathered, Self::Activations, Self::Arena, Self::Rest];
}

/// Which end of a text stands at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The text is centred there.
    Middle,
    /// The text ends there.
    End,
}

/// The rectangle inside the axes.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Left edge.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

/// A horizontal axis: its scale, labelled ticks, and what it measures.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Positions of values.
    pub scale: super::Scale,
    /// Values that get a line and a label.
    pub ticks: Vec<(f64, String)>,
    /// Quantity and unit.
    pub label: String,
}

/// A figure under construction, `WIDTH` units wide.
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    alt: String,
    body: String,
}

/// How wide a character of [`Ink::Code`] is.
pub const CODE: f64 = 6.6;

/// Width of every figure. No text is smaller than 11 units, so a page that gives a figure this many pixels shows every
/// word at 11 pixels or more.
pub const WIDTH: f64 = 460.0;

const STYLE: &str = "\
.wb-fig{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-variant-numeric:tabular-nums;\
display:block;width:100%;max-width:640px;height:auto}\
svg.wb-fig:root{color-scheme:light dark;color:CanvasText;background:Canvas}\
.wb-fig text{fill:currentColor}\
.wb-fig .wb-strong{font-weight:600;font-size:14px}\
.wb-fig .wb-quiet{opacity:.72;font-size:11px}\
.wb-fig .wb-grid{opacity:.22}\
.wb-fig .wb-baseline{color:#b97f00;color:light-dark(#b97f00,#e69f00)}\
.wb-fig .wb-attempt{color:#0072b2;color:light-dark(#0072b2,#56b4e9)}\
.wb-fig .wb-bound{color:#007d5b;color:light-dark(#007d5b,#00b988)}\
.wb-fig .wb-threshold{color:#d55e00;color:light-dark(#d55e00,#ff8b4a)}";

/// Added where a figure shows kinds of work.
const WORK_STYLE: &str = "\
.wb-fig .wb-product{color:#0072b2;color:light-dark(#0072b2,#56b4e9)}\
.wb-fig .wb-program{color:#b97f00;color:light-dark(#b97f00,#e69f00)}\
.wb-fig .wb-attention{color:#d55e00;color:light-dark(#d55e00,#ff8b4a)}\
.wb-fig .wb-dequantise{color:#007d5b;color:light-dark(#007d5b,#00b988)}\
.wb-fig .wb-scatter{color:#666;color:light-dark(#666,#aaa)}\
.wb-fig .wb-optimiser{color:#a0527f;color:light-dark(#a0527f,#d991bd)}";

/// Added where a figure shows what ranks do.
const PASS_STYLE: &str = "\
.wb-fig .wb-fetch{color:#b97f00;color:light-dark(#b97f00,#e69f00)}\
.wb-fig .wb-forward{color:#0072b2;color:light-dark(#0072b2,#56b4e9)}\
.wb-fig .wb-recompute{color:#a0527f;color:light-dark(#a0527f,#d991bd)}\
.wb-fig .wb-backward{color:#d55e00;color:light-dark(#d55e00,#ff8b4a)}\
.wb-fig .wb-gradient{color:#007d5b;color:light-dark(#007d5b,#00b988)}";

/// Added where a figure shows what bytes are for.
const SHARE_STYLE: &str = "\
.wb-fig .wb-shards{color:#0072b2;color:light-dark(#0072b2,#56b4e9)}\
.wb-fig .wb-trained{color:#007d5b;color:light-dark(#007d5b,#00b988)}\
.wb-fig .wb-gathered{color:#b97f00;color:light-dark(#b97f00,#e69f00)}\
.wb-fig .wb-kept{color:#d55e00;color:light-dark(#d55e00,#ff8b4a)}\
.wb-fig .wb-arena{color:#a0527f;color:light-dark(#a0527f,#d991bd)}\
.wb-fig .wb-rest{color:#666;color:light-dark(#666,#aaa)}";

/// Added where a figure shows characters of a text.
const CODE_STYLE: &str = "\
.wb-fig .wb-code{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\
.wb-fig .wb-id{font-size:11px;opacity:.72}";

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::Text => "wb-text",
            Self::Strong => "wb-strong",
            Self::Quiet => "wb-quiet",
            Self::Grid => "wb-grid",
            Self::Baseline => "wb-baseline",
            Self::Attempt => "wb-attempt",
            Self::Bound => "wb-bound",
            Self::Threshold => "wb-threshold",
            Self::Code => "wb-code",
            Self::Id => "wb-id",
            Self::Step(StepKind::Product) => "wb-product",
            Self::Step(StepKind::Program) => "wb-program",
            Self::Step(StepKind::Attention) => "wb-attention",
            Self::Step(StepKind::Dequantise) => "wb-dequantise",
            Self::Step(StepKind::Scatter) => "wb-scatter",
            Self::Step(StepKind::Optimiser) => "wb-optimiser",
            Self::Pass(Pass::Fetch) => "wb-fetch",
            Self::Pass(Pass::Forward) => "wb-forward",
            Self::Pass(Pass::Recompute) => "wb-recompute",
            Self::Pass(Pass::Backward) => "wb-backward",
            Self::Pass(Pass::Weight) => "wb-gradient",
            Self::Share(Share::Weights) => "wb-shards",
            Self::Share(Share::Trained) => "wb-trained",
            Self::Share(Share::Gathered) => "wb-gathered",
            Self::Share(Share::Activations) => "wb-kept",
            Self::Share(Share::Arena) => "wb-arena",
            Self::Share(Share::Rest) => "wb-rest",
        }
    }
}

impl Plot {
    /// An empty figure with its heading; `alt` says in sentences what the picture shows.
    pub fn new(title: &str, alt: &str) -> Self {
        let mut plot = Self { title: escape(title), alt: escape(alt), body: String::new() };
        plot.text((8.0, 18.0), Anchor::Start, Ink::Strong, title);
        plot
    }

    /// One line of text; `at` is its anchor on the base line.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, ink: Ink, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (place(at.0), place(at.1));
        let (class, text) = (ink.class(), escape(text));
        self.put(&format!(r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#));
    }

    /// A straight line, `width` thick.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), width: f64, ink: Ink) {
        let dash = if ink == Ink::Threshold { r#" stroke-dasharray="4 3""# } else { "" };
        self.put(&format!(
            r#"<path class="{}" d="M{} {}L{} {}" stroke="currentColor" stroke-width="{width}"{dash}/>"#,
            ink.class(),
            place(from.0),
            place(from.1),
            place(to.0),
            place(to.1)
        ));
    }

    /// A filled rectangle from corner to corner.
    pub fn area(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, opacity: f64) {
        let (x, width) = (from.0.min(to.0), (to.0 - from.0).abs());
        self.put(&format!(
            r#"<rect class="{}" x="{}" y="{}" width="{}" height="{}" fill="currentColor" fill-opacity="{opacity}"/>"#,
            ink.class(),
            place(x),
            place(from.1),
            place(width),
            place(to.1 - from.1)
        ));
    }

    /// A rectangle's outline with round corners over a faint ground.
    pub fn frame(&mut self, at: super::Rect, ink: Ink, ground: f64) {
        self.put(&format!(
            r#"<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="3" stroke="currentColor" stroke-width="1.2" fill="currentColor" fill-opacity="{ground}"/>"#,
            ink.class(),
            place(at.x),
            place(at.y),
            place(at.width),
            place(at.height)
        ));
    }

    /// Many filled rectangles in one element.
    pub fn areas<'a>(&mut self, all: impl Iterator<Item = &'a super::Rect>, ink: Ink, opacity: f64) {
        let one = |at: &super::Rect| {
            let [x, y, width, height] = [at.x, at.y, at.width, at.height].map(fine);
            format!("M{x} {y}h{width}v{height}h-{width}z")
        };
        let path: String = all.map(one).collect();
        if !path.is_empty() {
            self.put(&format!(
                r#"<path class="{}" d="{path}" fill="currentColor" fill-opacity="{opacity}"/>"#,
                ink.class()
            ));
        }
    }

    /// A line through several points.
    pub fn track(&mut self, points: &[(f64, f64)], width: f64, ink: Ink) {
        let corner = |(i, (x, y)): (usize, &(f64, f64))| {
            format!("{}{} {}", if i == 0 { "M" } else { "L" }, fine(*x), fine(*y))
        };
        let path: String = points.iter().enumerate().map(corner).collect();
        let dash = if ink == Ink::Threshold { r#" stroke-dasharray="4 3""# } else { "" };
        self.put(&format!(
            r#"<path class="{}" d="{path}" stroke="currentColor" stroke-width="{width}" stroke-linejoin="round"{dash}/>"#,
            ink.class()
        ));
    }

    /// A small arrow head that points down at a place.
    pub fn arrow(&mut self, x: f64, y: f64, ink: Ink) {
        let (x, y) = (place(x), place(y));
        self.put(&format!(r#"<path class="{}" d="M{x} {y}l-2.5-5h5z" fill="currentColor"/>"#, ink.class()));
    }

    /// The mark that belongs to an ink: diamond, disc or upright bar.
    pub fn mark(&mut self, x: f64, y: f64, ink: Ink) {
        let (x, y) = (place(x), place(y));
        let path = match ink {
            Ink::Baseline => format!("M{x} {y}m0-8.5l6 8.5l-6 8.5l-6-8.5z"),
            Ink::Bound => format!("M{x} {y}m-1.5-8h3v16h-3z"),
            _ => format!("M{x} {y}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"),
        };
        self.put(&format!(r#"<path class="{}" d="{path}" fill="currentColor"/>"#, ink.class()));
    }

    /// Many small dots in one element.
    pub fn dots(&mut self, at: impl Iterator<Item = (f64, f64)>, ink: Ink) {
        let path: Vec<String> = at.map(|(x, y)| format!("M{} {}h0", place(x), place(y))).collect();
        let path = path.concat();
        self.put(&format!(
            r#"<path class="{}" d="{path}" stroke="currentColor" stroke-width="3.2" stroke-linecap="round" stroke-opacity=".55"/>"#,
            ink.class()
        ));
    }

    /// Marks with their meanings, in a row from the left.
    pub fn legend(&mut self, y: f64, entries: &[(Ink, &str)]) {
        let mut x = 14.0;
        for (ink, meaning) in entries {
            self.mark(x, y - 4.0, *ink);
            self.text((x + 10.0, y), Anchor::Start, Ink::Quiet, meaning);
            x += 34.0 + 5.6 * meaning.chars().count() as f64;
        }
    }

    /// Meanings from the left, in as many lines as they take, behind what `draw` draws where it is told, 12 units wide;
    /// the base of the last line.
    pub fn entries<T: Copy>(
        &mut self,
        y: f64,
        entries: &[(T, &str)],
        draw: impl Fn(&mut Self, (f64, f64), T),
    ) -> f64 {
        let (mut x, mut y) = (8.0, y);
        for (what, meaning) in entries {
            let words = 5.9 * meaning.chars().count() as f64;
            if x > 8.0 && x + 16.0 + words > WIDTH - 8.0 {
                (x, y) = (8.0, y + 16.0);
            }
            draw(self, (x, y), *what);
            self.text((x + 16.0, y), Anchor::Start, Ink::Quiet, meaning);
            x += 30.0 + words;
        }
        y
    }

    /// Grid lines through each band, which leave the words between the bands alone.
    pub fn grid(&mut self, bands: &[Panel], axis: &Axis, ink: Ink) {
        for (band, (value, _)) in
            bands.iter().flat_map(|band| axis.ticks.iter().map(move |tick| (band, tick)))
        {
            let x = axis.scale.at(*value);
            self.line((x, band.top), (x, band.bottom), if ink == Ink::Grid { 1.0 } else { 1.3 }, ink);
        }
    }

    /// Tick labels and the axis' own label below the panel.
    pub fn axis(&mut self, panel: Panel, axis: &Axis) {
        for (value, label) in &axis.ticks {
            let half = 3.2 * label.chars().count() as f64;
            let x = axis.scale.at(*value).clamp(half, (WIDTH - half).max(half));
            self.text((x, panel.bottom + 14.0), Anchor::Middle, Ink::Quiet, label);
        }
        if !axis.label.is_empty() {
            self.text((panel.right, panel.bottom + 29.0), Anchor::End, Ink::Quiet, &axis.label);
        }
    }

    /// The SVG text of the figure, `height` units high.
    pub fn finish(self, height: f64) -> String {
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="wb-fig" role="img" viewBox="0 0 {WIDTH} {height}" fill="none">"#
        );
        let _ = writeln!(svg, "<title>{}</title>\n<desc>{}</desc>", self.title, self.alt);
        let more: String = self.more().concat();
        let _ = write!(svg, "<style>{STYLE}{more}</style>\n{}</svg>\n", self.body);
        svg
    }

    /// The styles of the inks that are used, beyond those of every figure.
    fn more(&self) -> [&'static str; 4] {
        let is_used = |ink: Ink| self.body.contains(ink.class());
        let style = |is_used: bool, style: &'static str| if is_used { style } else { "" };
        [
            style(StepKind::ALL.into_iter().map(Ink::Step).any(is_used), WORK_STYLE),
            style(Pass::ALL.into_iter().map(Ink::Pass).any(is_used), PASS_STYLE),
            style(Share::ALL.into_iter().map(Ink::Share).any(is_used), SHARE_STYLE),
            style(is_used(Ink::Code), CODE_STYLE),
        ]
    }

    fn put(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// Figures one below the other, as one: their descriptions follow each other, too.
pub fn stacked(title: &str, figures: &[String]) -> String {
    let between = |figure: &'_ str, begin: &str, end: &str| -> Option<String> {
        Some(figure.split_once(begin)?.1.split_once(end)?.0.to_owned())
    };
    let (mut plot, mut alt, mut top) = (Plot::new(title, ""), Vec::new(), 0.0);
    plot.body.clear(); // each has a heading of its own
    for figure in figures {
        let view = between(figure, "viewBox=\"0 0 ", "\"").unwrap_or_default();
        let height = view.split(' ').nth(1).and_then(|height| height.parse::<f64>().ok()).unwrap_or(0.0);
        alt.extend(between(figure, "<desc>", "</desc>"));
        let body = between(figure, "</style>\n", "</svg>").unwrap_or_default();
        plot.put(&format!("<g transform=\"translate(0 {})\">\n{body}</g>", place(top)));
        top += height + 12.0;
    }
    plot.alt = alt.join(" ");
    plot.finish(top)
}

/// A position to a tenth of a unit, without a needless `.0`.
fn place(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// A position to a hundredth, for what is small and near to others.
fn fine(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text for XML: markup escaped, characters that XML forbids left out.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in reference::clean::clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c) => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_do_not_reach_the_picture() {
        let mut plot = Plot::new("<script>alert(1)</script>", "a \"quote\" & \u{1b}[31mred");
        plot.text((0.0, 0.0), Anchor::Start, Ink::Text, "</text><image href='x'/>");
        let svg = plot.finish(10.0);
        assert!(!svg.contains("<script") && !svg.contains("<image") && !svg.contains('\u{1b}'), "{svg}");
        assert!(svg.contains("&lt;script&gt;alert(1)") && svg.contains("&quot;quote&quot; &amp; red"));
    }

    #[test]
    fn positions_are_short() {
        assert_eq!(
            (place(12.0).as_str(), place(0.25).as_str(), place(-3.12).as_str()),
            ("12", "0.2", "-3.1")
        );
    }
}
