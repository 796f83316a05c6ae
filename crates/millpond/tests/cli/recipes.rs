//! The page of recipes: every command gives what the page says.

use std::process::Command;

use crate::program::Folder;

/// A block of code of the page: its language, the text before it, and what is in it.
struct Block {
    before: String,
    language: String,
    text: String,
}

fn blocks(section: &str) -> Vec<Block> {
    let mut parts = section.split("```");
    let mut blocks = Vec::new();
    while let (Some(before), Some(block)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').expect("a block has lines");
        blocks.push(Block {
            before: before.to_owned(),
            language: language.to_owned(),
            text: text.to_owned(),
        });
    }
    blocks
}

/// The name of the file that a block holds, which stands before it.
fn file_name(before: &str) -> Option<&str> {
    let name = before.trim().rsplit('\n').next()?;
    name.strip_prefix('`')?.strip_suffix("`:")
}

#[test]
fn every_recipe_gives_what_the_page_says() {
    let page = include_str!("../../src/recipes.md");
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert!(sections.len() >= 10, "{} recipes", sections.len());
    for section in sections {
        let title = section.lines().next().unwrap_or_default();
        let folder = Folder::new();
        let mut told = None;
        for block in blocks(section) {
            match (file_name(&block.before), &*block.language) {
                (Some(name), _) => drop(folder.write(name, block.text)),
                (None, "sh") => told = Some(give(&folder, &block.text, title)),
                (None, _) => {
                    let told = told.take().expect("a command stands before its result");
                    assert_eq!(told, block.text, "{title}");
                }
            }
        }
        assert_eq!(told, None, "{title} shows what its command gives");
    }
}

/// What a command prints, in a folder with its files.
fn give(folder: &Folder, command: &str, title: &str) -> String {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_millpond"));
    let bin = bin.parent().expect("a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-ec", command])
        .env("PATH", format!("{bin}:{path}"))
        .current_dir(folder.path(""))
        .output()
        .expect("sh runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{title}: {err}");
    assert_eq!(err, "", "{title}");
    String::from_utf8(output.stdout).expect("UTF-8")
}
