//! The curves of a run's losses, as an SVG: training, and evaluation if there is one, over the steps.
//!
//! Colours follow the reader's scheme. The hues are those of Okabe and Ito, "Color Universal Design" (2008).
//! Evaluations are marked by discs, too, so that nothing is told by colour alone.

use std::fmt::Write as _;

use serde_json::Value as Json;

/// The losses of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    training: Vec<[f64; 2]>, // step, loss
    evaluation: Vec<[f64; 2]>,
}

/// The paper, and the rectangle inside the axes.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = HEIGHT - 44.0;

/// Points of a curve that are drawn: of a longer one, one in so many, and its last.
const MOST_POINTS: usize = 2000;

const STYLE: &str = "svg{background:#fff;color:#222;--training:#0072b2;--evaluation:#d55e00;\
    font:12px system-ui,sans-serif}\
    @media(prefers-color-scheme:dark){svg{background:#1b1b1b;color:#ddd;--training:#56b4e9;--evaluation:#ff8b4a}}\
    text{fill:currentColor}.grid{stroke:currentColor;opacity:.2}polyline{fill:none;stroke-width:1.5}\
    .training{stroke:var(--training)}.evaluation{stroke:var(--evaluation)}circle{fill:var(--evaluation)}";

/// From steps and losses to places on the paper.
struct Frame {
    steps: f64, // from 0
    losses: [f64; 2],
}

impl Curves {
    /// Those of the metrics' lines.
    pub fn of(lines: &[Json]) -> Self {
        let mut curves = Self::default();
        for line in lines {
            curves.add(line);
        }
        curves
    }

    /// Goes on with a line of the metrics. A loss that is no finite number is left out.
    pub fn add(&mut self, line: &Json) {
        for (key, curve) in [("loss", &mut self.training), ("eval_loss", &mut self.evaluation)] {
            curve.extend(line["step"].as_f64().zip(line[key].as_f64()).map(|(step, loss)| [step, loss]));
        }
    }

    /// The SVG.
    pub fn svg(&self) -> String {
        let [training, evaluation] = [&self.training, &self.evaluation].map(|curve| thinned(curve));
        let frame = Frame::around(&[&training[..], &evaluation].concat());
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>Loss over steps</title>\n<style>{STYLE}</style>\n"
        );
        frame.write_axes(&mut svg);
        frame.write_curve(&mut svg, "training", &training, LEFT);
        frame.write_curve(&mut svg, "evaluation", &evaluation, LEFT + 130.0);
        for [x, y] in evaluation.iter().map(|point| frame.at(*point)) {
            _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        svg + "</svg>\n"
    }
}

impl Frame {
    fn around(points: &[[f64; 2]]) -> Self {
        let all = |axis: usize| points.iter().map(move |point| point[axis]);
        let [low, high] = [all(1).reduce(f64::min), all(1).reduce(f64::max)].map(Option::unwrap_or_default);
        let losses = if low < high { [low, high] } else { [low - 0.5, low + 0.5] };
        Self { steps: all(0).fold(1.0, f64::max), losses }
    }

    fn at(&self, [step, loss]: [f64; 2]) -> [f64; 2] {
        let [low, high] = self.losses;
        let [across, up] = [step / self.steps, (loss - low) / (high - low)];
        [LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)]
    }

    fn write_axes(&self, svg: &mut String) {
        for (step, label) in ticks([0.0, self.steps], 8.0) {
            let [x, _] = self.at([step, 0.0]);
            _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>");
            _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                BOTTOM + 18.0
            );
        }
        for (loss, label) in ticks(self.losses, 6.0) {
            let [_, y] = self.at([0.0, loss]);
            _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>");
            _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        _ = writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">step</text>", HEIGHT - 8.0);
    }

    /// A curve, and its name with its last loss, which stands at `left`.
    fn write_curve(&self, svg: &mut String, name: &str, curve: &[[f64; 2]], left: f64) {
        let Some([_, last]) = curve.last() else { return };
        _ = write!(svg, "<polyline class=\"{name}\" points=\"");
        for [x, y] in curve.iter().map(|point| self.at(*point)) {
            _ = write!(svg, "{x:.1},{y:.1} ");
        }
        _ = writeln!(svg, "\"/>\n<path class=\"{name}\" stroke-width=\"1.5\" d=\"M{left} 20h20\"/>");
        _ = writeln!(svg, "<text x=\"{}\" y=\"24\">{name} {last:.4}</text>", left + 26.0);
    }
}

/// One point in so many, and the last.
fn thinned(curve: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let stride = curve.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.last().filter(|_| !curve.len().wrapping_sub(1).is_multiple_of(stride));
    curve.iter().step_by(stride).chain(last).copied().collect()
}

/// Multiples of 1, 2 or 5 times a power of ten, about so many of them, with their labels.
fn ticks([low, high]: [f64; 2], about: f64) -> Vec<(f64, String)> {
    let least = (high - low) / about;
    let decade = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|n| n * decade).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * decade);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (low / step).ceil();
    let values = (0..40).map(|i| (first + f64::from(i)) * step).take_while(|value| *value <= high);
    values.map(|value| (value, format!("{value:.digits$}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_losses_are_drawn() {
        let line = |step: u64, loss: f64| serde_json::json!({"step": step, "loss": loss});
        let runs: [Vec<Json>; 5] = [
            vec![],
            vec![line(1, 2.0)],
            vec![line(1, 2.0), line(2, f64::NAN), line(3, 2.0)],
            vec![line(1, 1e-300), line(2, 1e300), serde_json::json!({"step": 2, "eval_loss": 1.5})],
            (1..100_000).map(|step| line(step, 1.0 / step as f64)).collect(),
        ];
        for lines in runs {
            let svg = Curves::of(&lines).svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.len() < 60_000, "{}", &svg[..600]);
        }
    }

    #[test]
    fn a_thinned_curve_ends_where_the_curve_ends() {
        let curve: Vec<[f64; 2]> = (0..4001).map(|step| [f64::from(step), 0.0]).collect();
        for length in [1, 1999, 2000, 2001, 4000, 4001] {
            let thin = thinned(&curve[..length]);
            assert!(thin.len() <= MOST_POINTS + 1 && thin.last() == curve[..length].last(), "{length}");
        }
    }

    #[test]
    fn ticks_are_round_numbers_within_their_bounds() {
        let labels =
            |bounds: [f64; 2]| ticks(bounds, 6.0).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels([0.0, 60.0]), ["0", "10", "20", "30", "40", "50", "60"]);
        assert_eq!(labels([1.13, 1.52]), ["1.2", "1.3", "1.4", "1.5"]);
    }
}
