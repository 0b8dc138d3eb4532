//! Contract: a file of a reader is written as a whole, where it was asked for, and nothing else is harmed.

use std::fs;
use std::path::Path;

use reference::atomic_write;
use tests::program::{Ran, run};

fn grader(folder: &Path, arguments: &[&str]) -> Ran {
    run(Path::new(env!("CARGO_BIN_EXE_own")), folder, arguments)
}

/// The program that a command belongs to: the trainer's verbs are those about templates.
fn program(folder: &Path, arguments: &[&str]) -> Ran {
    match arguments {
        ["template", ..] => run(Path::new(env!("CARGO_BIN_EXE_own-trainer")), folder, arguments),
        _ => grader(folder, arguments),
    }
}

/// The names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn many_writers_leave_one_whole_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/folder/file");
    std::thread::scope(|scope| {
        for letter in b'a'..b'i' {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    atomic_write::write(path, &vec![letter; 1 << 16]).expect("a file");
                    let read = fs::read(path).expect("the file is there");
                    assert!(read.len() == 1 << 16 && read.iter().all(|byte| *byte == read[0]), "a torn file");
                }
            });
        }
    });
    assert_eq!(names(&folder.path().join("new/folder")), ["file"], "nothing is left beside it");
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    atomic_write::write(&path, b"old").expect("a file");
    let failed: Result<(), std::io::Error> = atomic_write::write_by(&path, |file| {
        std::io::Write::write_all(file, b"new")?;
        Err(std::io::Error::other("half-way"))
    });
    assert_eq!(failed.expect_err("it fails").to_string(), "half-way");
    assert_eq!(
        (fs::read(&path).expect("the file"), names(folder.path())),
        (b"old".to_vec(), vec!["file".into()])
    );
}

#[cfg(unix)]
#[test]
fn permissions_and_links_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let [file, link, loose] = ["file", "link", "loose"].map(|name| folder.path().join(name));
    fs::write(&file, "old").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("file", &link).expect("a link");
    symlink("nowhere", &loose).expect("a link");
    atomic_write::write(&link, b"new").expect("written through the link");
    assert!(link.symlink_metadata().expect("the link").is_symlink());
    assert_eq!(fs::read(&file).expect("the file"), b"new");
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o640);
    let refused = atomic_write::write(&loose, b"new").expect_err("it leads nowhere");
    assert!(refused.to_string().contains("a symbolic link that leads nowhere"), "{refused}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).expect("permissions");
    let refused = atomic_write::write(&file, b"newer").expect_err("it is read-only");
    assert!(refused.to_string().contains("found one that is read-only"), "{refused}");
    let refused = atomic_write::write(folder.path(), b"new").expect_err("it is a folder");
    assert!(refused.to_string().contains("found a directory"), "{refused}");
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_written() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    symlink("pipe", folder.path().join("link")).expect("a link");
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    fs::write(folder.path().join("t.jinja"), "{{ messages }}").expect("a template");
    for name in ["pipe", "link", "folder"] {
        let runs: [&[&str]; 5] = [
            &["rubric", "-o", name],
            &["test", "nf4", "--case", "A.1", "--attempt", "solution", "-o", name],
            &["test", "nf4", "--case", "A.1", "--attempt", "solution", "--html", name],
            &["test", "nf4", "--case", "A.1", "--attempt", "solution", "--md", name],
            &["template", "lint", "t.jinja", "-o", name],
        ];
        for arguments in runs {
            let ran = program(folder.path(), arguments);
            assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains("expected a regular file, found"), "{arguments:?}: {}", ran.stderr);
        }
    }
    assert!(pipe.metadata().expect("the pipe").file_type().is_fifo());
    assert_eq!(names(folder.path()), ["folder", "link", "pipe", "t.jinja"]);
}

#[test]
fn what_is_read_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("sub")).expect("a folder");
    let made = grader(
        folder.path(),
        &["test", "nf4", "--case", "A.1", "--attempt", "solution", "--json", "-o", "card.json"],
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    fs::write(folder.path().join("t.jinja"), "{{ messages }}").expect("a template");
    let card = fs::read(folder.path().join("card.json")).expect("the report");
    let refused: [&[&str]; 6] = [
        &["report", "card.json", "-o", "card.json"],
        &["report", "card.json", "--json", "-o", "./sub/../card.json"],
        &["report", "card.json", "--html", "card.json"],
        &["report", "card.json", "--md", "new", "--html", "./new"],
        &["template", "lint", "t.jinja", "-o", "t.jinja"],
        &["template", "render", "t.jinja", "--messages", "card.json", "-o", "card.json"],
    ];
    for arguments in refused {
        let ran = program(folder.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("expected a file of its own"), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read(folder.path().join("card.json")).expect("the report"), card);
    let ran = grader(folder.path(), &["report", "card.json", "-o", "sub/text", "--html", "h", "--md", "m"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(names(folder.path()), ["card.json", "h", "m", "sub", "t.jinja"]);
}
