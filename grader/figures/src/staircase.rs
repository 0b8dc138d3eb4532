//! Times of every version of a kernel on one weight.

use scorecard::Challenge;

use super::layout::{LEFT, RIGHT, ROW, TICK_GAP, bands, labelled, svg_name, track, usable};
use super::number::{Time, digits};
use super::plot::{Anchor, Ink, Panel, Plot};
use super::scale::{Law, Scale};
use super::timing;

/// The time of every version of one pass, from the first idea to the machine's bound.
pub fn staircase(challenge: &Challenge) -> Option<String> {
    let versions = timing::versions(challenge);
    let rows: Vec<(&str, f64)> =
        versions.iter().filter_map(|(label, time)| Some((label.as_str(), usable(time.value)?))).collect();
    let slowest = rows.iter().map(|(_, us)| *us).reduce(f64::max)?;
    let unit = Time::of(rows.iter().map(|(_, us)| *us));
    let describe = |(label, us): &(&str, f64)| format!("{label} {}", unit.show(*us));
    let alt = format!("{}.", rows.iter().map(describe).collect::<Vec<_>>().join(", "));
    let mut plot = Plot::new(&format!("The staircase of {}", challenge.name), &alt);
    let panel = Panel { left: LEFT, right: RIGHT, top: 30.0, bottom: 36.0 + ROW * rows.len() as f64 };
    let least = rows.iter().map(|(_, us)| *us).reduce(f64::min)? * 0.7;
    let domain = [unit.scaled(least), unit.scaled(slowest * 1.14)];
    let scale = Scale::new(Law::Log, domain, [LEFT, RIGHT]);
    let axis = labelled(scale, TICK_GAP, format!("{}, logarithmic", svg_name(unit)));
    plot.axis(panel, &axis);
    plot.grid(&bands(panel, rows.len()), &axis, Ink::Grid);
    for (i, (label, us)) in rows.iter().enumerate() {
        let top = panel.top + ROW * i as f64;
        plot.text((LEFT + 4.0, top + 14.0), Anchor::Start, Ink::Text, label);
        plot.text(
            (RIGHT - 4.0, top + 14.0),
            Anchor::End,
            Ink::Quiet,
            &format!("{} {}", digits(unit.scaled(*us)), svg_name(unit)),
        );
        let (y, end) = (track(top), axis.scale.at(unit.scaled(*us)));
        plot.area((LEFT, y - 6.0), (end, y + 6.0), Ink::Attempt, 0.85);
    }
    Some(plot.finish(panel.bottom + 36.0))
}
