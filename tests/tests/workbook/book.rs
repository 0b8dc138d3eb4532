//! *Look*: the book in a real browser.
//!
//! The pages are checked as text by `book::check`; this loads each of them in Chromium, on a wide screen and
//! on a phone, and asks the browser: did a script or a file fail, is each formula drawn and in its font, is
//! each picture there and its smallest word 11 pixels high, does the page scroll sideways, does a shadow
//! lie on what scrolls by itself. Where there is no Chromium the test prints `not measured`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The browsers that are looked for on the path.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// One page may take this long.
const LIMIT: Duration = Duration::from_mins(3);

/// The width of a screen and of a phone, in pixels. No window of the browser is as narrow as a phone: a frame is.
const SCREEN: usize = 1280;
const PHONE: usize = 390;

/// Added to each page: writes what the browser found into an attribute of the root element, of the frame's page where
/// the page is in a frame.
const PROBE: &str = r"<script>addEventListener('load', () => {
const found = [], box = e => e.getBoundingClientRect();
for (const e of document.querySelectorAll('details')) e.open = true;
for (const e of document.images) if (!e.complete || !e.naturalWidth) found.push('missing picture ' + e.src);
for (const e of document.querySelectorAll('main svg')) if (!box(e).height) found.push('empty drawing');
for (const e of document.querySelectorAll('math'))
  if (!box(e).height || e.querySelector('merror')) found.push('formula not drawn: ' + e.textContent);
for (const e of document.querySelectorAll('html, .content'))
  if (e.scrollWidth > e.clientWidth) found.push('scrolls sideways: ' + e.scrollWidth + ' in ' + e.clientWidth);
const wide = e => e.scrollWidth > e.clientWidth && /auto|scroll/.test(getComputedStyle(e).overflowX);
for (const e of document.querySelectorAll('main *'))
  if (wide(e) && !getComputedStyle(e).backgroundAttachment.includes('local'))
    found.push('scrolls without a shadow: ' + e.tagName + ' ' + e.className);
for (const e of document.querySelectorAll('main svg text')) {
  const height = parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a;
  if (height < 10.99) found.push('a word of ' + height.toFixed(1) + ' pixels: ' + e.textContent);
}
const font = [...document.fonts].find(font => font.family.includes('STIX Two Math'));
if (document.querySelector('math') && font?.status !== 'loaded') found.push('formulas without their font');
top.document.documentElement.dataset.probe = found.join('; ') || 'nothing';
});</script>";

#[test]
fn every_link_formula_and_code_block_of_the_book_holds() {
    let seen = ::book::check::check(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    println!("{seen}");
}

#[test]
fn every_page_of_the_book_loads_in_a_browser_without_an_error() {
    let Some(browser) = BROWSERS.into_iter().find_map(on_path) else {
        println!("not measured: no Chromium on the path");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let pages = probed(folder.path());
    let jobs: Vec<Job> =
        pages.iter().flat_map(|page| [(page, SCREEN), (page, PHONE)]).enumerate().map(Job::of).collect();
    let (even, odd): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.number % 2 == 0);
    let load = |jobs: Vec<&Job>| {
        jobs.into_iter().flat_map(|job| job.faults(&browser, folder.path())).collect::<Vec<_>>()
    };
    let faults = std::thread::scope(|scope| {
        let other = scope.spawn(|| load(odd));
        let mut faults = load(even);
        faults.extend(other.join().expect("the second browser"));
        faults
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A page at a width.
struct Job<'a> {
    number: usize,
    page: &'a Path,
    width: usize,
}

impl<'a> Job<'a> {
    fn of((number, (page, width)): (usize, (&'a PathBuf, usize))) -> Self {
        Self { number, page, width }
    }

    /// What is wrong with the page, in the browser's words and the checker's.
    fn faults(&self, browser: &Path, folder: &Path) -> Vec<String> {
        let name = format!("{} at {}", self.page.file_name().unwrap_or_default().display(), self.width);
        match self.load(browser, folder) {
            Ok((dom, log)) => {
                let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned);
                let own = self.width == SCREEN; // otherwise what came is the page around the frame
                let left = own.then(|| ::book::check::page(&dom)).into_iter().flatten();
                console.chain(left).chain(probe(&dom)).map(|what| format!("{name}: {what}")).collect()
            }
            Err(what) => vec![format!("{name}: {what}")],
        }
    }

    /// The page, or one that shows it in a frame.
    fn shown(&self, folder: &Path) -> Result<PathBuf, String> {
        if self.width == SCREEN {
            return Ok(self.page.to_path_buf());
        }
        let (frame, page) = (folder.join("frame.html"), self.page.display());
        let html = format!("<iframe src=\"file://{page}\" width=\"{}\" height=\"844\"></iframe>", self.width);
        fs::write(&frame, html).map_err(|error| error.to_string())?;
        Ok(frame)
    }

    /// The page's elements after its scripts have run, and the browser's log.
    fn load(&self, browser: &Path, folder: &Path) -> Result<(String, String), String> {
        let own = folder.join(format!("browser-{}", self.number));
        fs::create_dir(&own).map_err(|error| error.to_string())?;
        let (out, log) = (own.join("dom.html"), own.join("log.txt"));
        let mut child = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"])
            .args(["--enable-logging=stderr", "--v=0", "--dump-dom"])
            .arg(format!("--user-data-dir={}", own.join("profile").display()))
            .args([&format!("--window-size={SCREEN},900"), "--disable-web-security"])
            .arg(format!("file://{}", self.shown(&own)?.display()))
            .stdin(Stdio::null())
            .stdout(File::create(&out).map_err(|error| error.to_string())?)
            .stderr(File::create(&log).map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| error.to_string())?;
        let begin = Instant::now();
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if begin.elapsed() > LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not loaded after {LIMIT:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok((read(&out).map_err(|error| error.to_string())?, read(&log).map_err(|error| error.to_string())?))
    }
}

/// What the probe wrote; that it wrote anything shows that the page came to its end.
fn probe(dom: &str) -> Option<String> {
    let Some((_, found)) = dom.split_once("data-probe=\"") else {
        return Some("the page was not loaded to its end".into());
    };
    let found = found.split('"').next().unwrap_or("");
    (found != "nothing").then(|| found.to_owned())
}

/// Builds the book and adds the probe to its pages. The page for addresses that lead nowhere is left out:
/// it speaks of a site's root, which a folder does not have.
fn probed(folder: &Path) -> Vec<PathBuf> {
    let built =
        ::book::build(&::book::root(), Some(&folder.join("pages"))).unwrap_or_else(|error| panic!("{error}"));
    let mut pages: Vec<PathBuf> = fs::read_dir(built)
        .expect("the pages")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.extension().is_some_and(|e| e == "html") && !path.ends_with("404.html"))
        .collect();
    pages.sort();
    for page in &pages {
        let html = fs::read_to_string(page).expect("a page");
        fs::write(page, html.replacen("</head>", &format!("{PROBE}</head>"), 1))
            .expect("a page with its probe");
    }
    pages
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
