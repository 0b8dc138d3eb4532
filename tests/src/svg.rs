//! A figure read as a browser would: whether it is well formed, and where its words stand.

/// The words of a figure.
pub struct Svg {
    width: f64,
    height: f64,
    texts: Vec<Text>,
}

/// A line of text, as wide as its characters usually are.
struct Text {
    words: String,
    left: f64,
    right: f64,
    base: f64,
}

impl Svg {
    /// Reads it; what is not well formed, otherwise.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut open: Vec<&str> = Vec::new();
        let mut svg = Self { width: 0.0, height: 0.0, texts: Vec::new() };
        let mut rest = text;
        while let Some((before, from)) = rest.split_once('<') {
            sound(before)?;
            let (tag, after) = from.split_once('>').ok_or("a tag without an end")?;
            if let Some(name) = tag.strip_prefix('/') {
                let last = open.pop().unwrap_or("nothing");
                if last != name {
                    return Err(format!("<{last}> is ended by </{name}>"));
                }
            } else {
                let name = tag.split([' ', '/']).next().unwrap_or_default();
                attributes(tag)?;
                svg.see(name, tag, after.split('<').next().unwrap_or_default())?;
                open.extend((!tag.ends_with('/')).then_some(name));
            }
            rest = after;
        }
        if open.is_empty() { Ok(svg) } else { Err(format!("{open:?} have no end")) }
    }

    fn see(&mut self, name: &str, tag: &str, inside: &str) -> Result<(), String> {
        match name {
            "svg" => {
                let numbers = attribute(tag, "viewBox").unwrap_or_default();
                let numbers: Vec<f64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
                let [_, _, width, height] = numbers[..] else { return Err("no view box".into()) };
                (self.width, self.height) = (width, height);
            }
            "text" => self.texts.push(Text::read(tag, inside)?),
            _ => {}
        }
        Ok(())
    }

    /// Words that are cut off, or that stand over others.
    pub fn fault(&self) -> Option<String> {
        let outside = |text: &&Text| {
            text.left < -1.0 || text.right > self.width + 1.0 || text.base < 8.0 || text.base > self.height
        };
        if let Some(text) = self.texts.iter().find(outside) {
            return Some(format!(
                "`{}` from {} to {} at {} is cut off",
                text.words, text.left, text.right, text.base
            ));
        }
        let pairs =
            self.texts.iter().enumerate().flat_map(|(i, a)| self.texts[i + 1..].iter().map(move |b| (a, b)));
        let mut meeting = pairs.filter(|(a, b)| {
            (a.base - b.base).abs() < 8.5 && a.left < b.right - 1.0 && b.left < a.right - 1.0
        });
        meeting.next().map(|(a, b)| format!("`{}` stands over `{}` at {}", a.words, b.words, a.base))
    }
}

impl Text {
    fn read(tag: &str, inside: &str) -> Result<Self, String> {
        let number = |name: &str| {
            let value = attribute(tag, name).and_then(|value| value.parse::<f64>().ok());
            value.filter(|value| value.is_finite()).ok_or_else(|| format!("`{tag}` has no {name}"))
        };
        let (x, base) = (number("x")?, number("y")?);
        let words =
            inside.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
        let words = words.replace("&amp;", "&");
        let each = match attribute(tag, "class") {
            Some("wb-strong") => 7.6,
            Some("wb-quiet") => 5.9,
            Some("wb-id") => 7.0,
            _ => 6.6,
        };
        let width = each * words.chars().count() as f64;
        let left = match attribute(tag, "text-anchor") {
            Some("middle") => x - width / 2.0,
            Some("end") => x - width,
            _ => x,
        };
        Ok(Self { words, left, right: left + width, base })
    }
}

/// Whether text between tags has no stray sign.
fn sound(text: &str) -> Result<(), String> {
    let entity =
        |after: &str| ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| after.starts_with(name));
    let stray = text.contains('>') || text.split('&').skip(1).any(|after| !entity(after));
    if stray { Err(format!("a stray sign in `{text}`")) } else { Ok(()) }
}

/// Whether every attribute of a tag is quoted and stands there once.
fn attributes(tag: &str) -> Result<(), String> {
    let mut names = Vec::new();
    for (i, part) in tag.split('"').enumerate() {
        if i % 2 == 0 {
            let name = part.rsplit(' ').next().unwrap_or_default().trim_end_matches('=').to_owned();
            if part.ends_with('=') && names.contains(&name) {
                return Err(format!("`{name}` twice in `{tag}`"));
            }
            names.push(name);
        }
    }
    if tag.matches('"').count() % 2 == 0 { Ok(()) } else { Err(format!("an open quote in `{tag}`")) }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {name}=\""))?.1.split('"').next()
}
