//! A flame graph as a picture.

use std::collections::HashMap;
use std::fmt::Write;

use super::tree::CallTree;
use super::{Options, escaped};
use crate::filter::Filter;
use crate::profile::{FrameKind, Profile};

/// The smallest part of the picture's width that is drawn.
pub const SVG_SHARE_MIN: f64 = 0.001;

/// No deeper than this.
const DEPTH_MAX: usize = 200;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 36.0;
/// How wide a letter is, about.
const LETTER: f64 = 6.6;

struct Picture<'a> {
    tree: &'a CallTree,
    totals: Vec<f64>,
    children: HashMap<usize, Vec<usize>>,
    boxes: String,
    depth: usize,
}

/// A picture of a profile, with the samples that a filter takes.
pub fn svg(profile: &Profile, filter: &Filter, options: &Options) -> String {
    let mut tree = CallTree::default();
    tree.add(profile, filter, 0, 1.0);
    let (totals, children) = tree.totals();
    let mut picture = Picture {
        tree: &tree,
        totals,
        children,
        boxes: String::new(),
        depth: 0,
    };
    picture.draw(0, MARGIN, WIDTH - 2.0 * MARGIN, 0);
    let height = HEAD + (picture.depth as f64 + 1.0) * ROW + MARGIN;
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"15\" fill=\"#222\">{}</text>\n{}</svg>\n",
        escaped(&options.title),
        picture.boxes
    );
    out
}

impl Picture<'_> {
    fn draw(&mut self, node: usize, x: f64, width: f64, depth: usize) {
        self.depth = self.depth.max(depth);
        let all = self.totals[0];
        let own = self.totals[node];
        let (name, colour) = match self.tree.function(node) {
            None => ("all".to_owned(), "#d8d8d8"),
            Some((name, _, kind)) => (name.clone(), colour(*kind)),
        };
        let share = if all > 0.0 { own / all * 100.0 } else { 0.0 };
        let y = HEAD + depth as f64 * ROW;
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        let shown: String = match name.chars().count() <= letters {
            true => name.clone(),
            false if letters >= 4 => name.chars().take(letters - 1).chain(['…']).collect(),
            false => String::new(),
        };
        let _ = writeln!(
            self.boxes,
            "<g><title>{} — {:.2} s, {share:.2} %</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" rx=\"2\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#111\">{}</text></g>",
            escaped(&name),
            own / 1e6,
            (width - 0.5).max(0.3),
            ROW - 1.0,
            x + 3.0,
            y + 12.0,
            escaped(&shown)
        );
        if depth == DEPTH_MAX || own <= 0.0 {
            return;
        }
        let mut left = x;
        for child in self.children.get(&node).cloned().unwrap_or_default() {
            let part = width * self.totals[child] / own;
            if part >= WIDTH * SVG_SHARE_MIN {
                self.draw(child, left, part, depth + 1);
            }
            left += part;
        }
    }
}

fn colour(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Kernel => "#f0a35e",
        FrameKind::Native => "#7fb7e6",
        FrameKind::Interpreted => "#8fce8a",
    }
}
