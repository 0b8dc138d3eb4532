//! The grader's side: start a team, read its results, end it when it oversteps, go on after the fault.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::gathered::Gathered;
use super::ledger::Ledger;
use super::link::{self, Line};
use super::team::{Launch, Stop, Team};
use super::{Item, Message, Opening, Order, Request, Said};
use crate::calls::replay_command;
use crate::scorecard::{Check, Guard, Outcome};

/// What a program may take to start.
const STARTUP: Duration = Duration::from_mins(1);

/// One attempt at a time: what it leaves behind is known by having appeared while it ran.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs all items, with as many children as it takes. `progress` hears each item begin.
pub(crate) fn gather(
    launch: &Launch,
    request: &Request,
    items: &[Item],
    progress: &dyn Fn(&str),
) -> std::io::Result<Gathered> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut gathered = Gathered::default();
    let mut rest = items;
    while !rest.is_empty() {
        let batch = batch(rest);
        let run = Run::new(launch, request)?;
        let done = match run.work(request, batch, &mut gathered, progress) {
            Ok(done) => done,
            Err(Fault { item, cause, hang }) => {
                let skipped = if hang { siblings(&batch[item..]) } else { 1 };
                for (i, at_fault) in batch[item..item + skipped].iter().enumerate() {
                    let message = if i == 0 { cause.clone() } else { after(&batch[item], &cause) };
                    blame(&mut gathered, request, at_fault, message, hang);
                }
                item + skipped
            }
        };
        rest = &rest[done..];
    }
    // a guard that watches every item may have tripped before its own
    let place = |guard: &Guard| items.iter().position(|item| item.guard() == Some(guard.name.as_str()));
    gathered.guards.sort_by_key(|guard| place(guard).unwrap_or(items.len()));
    Ok(gathered)
}

/// The items that one child may do: up to the next one that wants a process of its own.
fn batch(items: &[Item]) -> &[Item] {
    if items[0].fresh {
        return &items[..1];
    }
    let end = items.iter().position(|item| item.fresh).unwrap_or(items.len());
    &items[..end]
}

/// How many items from the first on are of the same step: one that hangs is not waited for again.
fn siblings(items: &[Item]) -> usize {
    items.iter().take_while(|item| item.group() == items[0].group()).count()
}

fn after(first: &Item, cause: &str) -> String {
    format!("not run, because {} {cause}", first.name)
}

/// Books a fault on the item that was being worked on. An attempt that leaves a timed case has kept the guards
/// of it from looking; one that is slow has not, for a busy machine makes everyone slow.
fn blame(gathered: &mut Gathered, request: &Request, item: &Item, cause: String, hang: bool) {
    let challenge = &request.challenge;
    let blind = |name: &str| {
        let (challenge, name, detail) = (challenge.clone(), name.to_owned(), cause.clone());
        Guard { challenge, name, ran: false, tripped: false, detail }
    };
    if let Some(name) = item.guard() {
        return gathered.add(blind(name));
    }
    if !item.is_check() {
        item.guards.iter().filter(|_| !hang).for_each(|name| gathered.add(blind(name)));
        let numbers = item.numbers.iter().filter(|name| !name.contains('*')).chain([&item.name]);
        gathered.unmeasured.extend(numbers.map(|name| (name.clone(), cause.clone())));
        return;
    }
    gathered.checks.push(Check {
        name: item.name.clone(),
        outcome: Outcome::Wrong,
        detail: cause,
        replay: replay_command(challenge, &item.name, request.effort.seed),
    });
}

/// Why a child ended before its list did.
struct Fault {
    item: usize,
    cause: String,
    hang: bool,
}

/// A team at work on some items.
struct Run {
    team: Team,
    shows_calls: bool,
}

impl Run {
    fn new(launch: &Launch, request: &Request) -> std::io::Result<Self> {
        Ok(Self { team: Team::start(launch, request)?, shows_calls: request.effort.shows_calls })
    }

    /// Has items done until the list is at its end or a rank can do no more, and says how many are done; or what went
    /// wrong with which item.
    fn work(
        mut self,
        request: &Request,
        items: &[Item],
        into: &mut Gathered,
        progress: &dyn Fn(&str),
    ) -> Result<usize, Fault> {
        if let Err(stop) = self.open(request, items) {
            return Err(self.fault(0, stop));
        }
        for (i, item) in items.iter().enumerate() {
            progress(&item.name);
            let mut ledger = Ledger::new(&request.challenge, item);
            match self.one(i, item, &mut ledger) {
                Ok(recycle) => {
                    ledger.close(into);
                    if recycle {
                        self.keep_printed(into);
                        return Ok(i + 1);
                    }
                }
                Err(stop) => {
                    ledger.break_off(into);
                    return Err(self.fault(i, stop));
                }
            }
        }
        self.keep_printed(into);
        Ok(items.len()) // the team is ended by `drop`: an exit can hang, too
    }

    /// Where calls are shown: what the attempt printed, to its end.
    fn keep_printed(&mut self, into: &mut Gathered) {
        if self.shows_calls {
            self.team.dismiss();
            into.printed.push_str(&self.team.said(0));
        }
    }

    /// Says what there will be to do, and waits until every rank is there to do it.
    fn open(&mut self, request: &Request, items: &[Item]) -> Result<(), Stop> {
        let names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
        let orders = self.orders(0);
        for (rank, order) in orders.iter().enumerate() {
            let (request, items, nonce) = (request.clone(), names.clone(), order.nonce.clone());
            self.team.tell(rank, &Opening { request, rank, items, nonce })?;
        }
        let mut waiting = Waiting::new(orders);
        while waiting.is_open() {
            match self.hear(&waiting, Instant::now() + STARTUP, STARTUP)? {
                (rank, Message::Ready) => waiting.done(rank),
                (rank, _) => {
                    let message = "reported a result before it was asked for one";
                    return Err(Stop::Refused(self.team.of_rank(rank, message)));
                }
            }
        }
        Ok(())
    }

    /// An order for each rank, with a nonce of its own.
    fn orders(&self, item: usize) -> Vec<Order> {
        (0..self.team.ranks()).map(|_| Order { item, nonce: nonce() }).collect()
    }

    /// Has one item done by every rank; whether a process is of no use after it. Rank 0 reports; another rank says
    /// when it is done, and what went wrong there.
    fn one(&mut self, i: usize, item: &Item, ledger: &mut Ledger<'_>) -> Result<bool, Stop> {
        let orders = self.orders(i);
        for (rank, order) in orders.iter().enumerate() {
            self.team.tell(rank, order)?;
        }
        let (mut waiting, mut recycle) = (Waiting::new(orders), false);
        let deadline = Instant::now() + item.limit;
        while waiting.is_open() {
            match self.hear(&waiting, deadline, item.limit)? {
                (rank, Message::Done) => waiting.done(rank),
                (rank, Message::Recycle) => {
                    waiting.done(rank);
                    recycle = true;
                }
                (0, result) => ledger.admit(result).map_err(Stop::Refused)?,
                (rank, Message::Failed(why)) => return Err(Stop::Refused(self.team.of_rank(rank, &why))),
                (rank, _) => {
                    let message = "reported a result, expected that of rank 0";
                    return Err(Stop::Refused(self.team.of_rank(rank, message)));
                }
            }
        }
        ledger.lacks().map_or(Ok(recycle), |lack| Err(Stop::Refused(lack)))
    }

    /// The next message on the item in progress, and whose it is.
    fn hear(
        &mut self,
        waiting: &Waiting,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(usize, Message), Stop> {
        loop {
            if Instant::now() > deadline {
                return Err(Stop::Late(limit, waiting.first().unwrap_or(0)));
            }
            self.team.count()?;
            let Some((rank, line)) = self.team.hear()? else { continue };
            let describe = |cause: String| Stop::Refused(self.team.of_rank(rank, &cause));
            let order = waiting.order(rank).ok_or_else(|| describe("went on after it was done".into()))?;
            return Ok((rank, understood(line, order).map_err(describe)?));
        }
    }

    fn fault(self, item: usize, stop: Stop) -> Fault {
        let (cause, hang) = match stop {
            Stop::Gone(rank) => (self.team.ended(rank), false),
            Stop::Refused(cause) => (self.team.stopped(cause), false),
            Stop::Late(limit, rank) => {
                let late = format!("ran past its time limit of {} s", limit.as_secs());
                let late = self.team.of_rank(rank, &late);
                (self.team.stopped(late), true)
            }
        };
        Fault { item, cause, hang }
    }
}

/// The orders of an item, as long as their ranks work on it.
struct Waiting(Vec<Option<Order>>);

impl Waiting {
    fn new(orders: Vec<Order>) -> Self {
        Self(orders.into_iter().map(Some).collect())
    }

    fn is_open(&self) -> bool {
        self.first().is_some()
    }

    /// The first rank that is not done.
    fn first(&self) -> Option<usize> {
        self.0.iter().position(Option::is_some)
    }

    fn order(&self, rank: usize) -> Option<&Order> {
        self.0[rank].as_ref()
    }

    fn done(&mut self, rank: usize) {
        self.0[rank] = None;
    }
}

/// A message on the item in progress, or what was written in its place.
fn understood(line: Line, order: &Order) -> Result<Message, String> {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong => {
            let most = link::LINE_BYTES;
            return Err(format!(
                "wrote a line of more than {most} bytes into the pipe of the grader's results"
            ));
        }
    };
    let Ok(said) = serde_json::from_slice::<Said>(&line) else {
        let begin: String = String::from_utf8_lossy(&line).chars().take(200).collect();
        return Err(format!("wrote {begin:?} into the pipe of the grader's results"));
    };
    if said.item != order.item || said.nonce != order.nonce {
        return Err(
            "wrote a result of its own into the pipe of the grader's results: it has not the nonce of the \
                    item in progress"
                .into(),
        );
    }
    Ok(said.message)
}

/// 128 bits that nobody can guess.
fn nonce() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

/// Children that speak the protocol wrongly, as shell scripts: their standard input is the connection.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::gather::{Effort, Source};

    /// Reads an order into `$i` and `$n`, and says something about it.
    const SPEAKS: &str = r#"
        hear() { read -r l || exit 0; n=${l##*nonce\":\"}; n=${n%\"\}}; i=${l##*\"item\":}; i=${i%%,*}; }
        say() { echo "{\"item\":$i,\"nonce\":\"$n\",\"message\":$1}" >&0; }
        check() { say "{\"Check\":{\"name\":\"$1\",\"outcome\":\"passed\",\"detail\":\"\",\"replay\":\"\"}}"; }
        number() { say "{\"Measured\":[\"$1\",{\"value\":1.0,\"unit\":\"x\",\"interval\":null,\"samples\":[]}]}"; }
        hear; i=0; say '"Ready"'
    "#;

    /// What is gathered of a script that is asked for some items; each may take a second.
    fn gathered(script: &str, items: &[Item]) -> Gathered {
        gathered_of((1, 256 << 20), script, items)
    }

    /// The same of some ranks that may hold so many bytes together.
    fn gathered_of((ranks, memory_limit): (usize, usize), script: &str, items: &[Item]) -> Gathered {
        let effort = Effort { seed: 1, quick: true, ..Effort::default() };
        let request = Request {
            challenge: "nf4".into(),
            course: "nf4".into(),
            source: Source::Own,
            effort,
            ranks,
            memory_limit,
            ordinal: 0,
            text: None,
            graph: None,
        };
        let script = format!("{SPEAKS}\n{script}");
        let launch = Launch { program: "sh".into(), arguments: vec!["-c".into(), script.into()] };
        gather(&launch, &request, items, &|_| ()).expect("there is a shell")
    }

    fn steps() -> [Item; 2] {
        ["A.1/0", "A.2/1"].map(|name| Item::new(name, 1))
    }

    /// Every step is wrong, for this reason.
    fn each_is_wrong(script: &str, reason: &str) {
        let checks = gathered(script, &steps()).checks;
        assert_eq!(checks.len(), 2, "{script}");
        for check in checks {
            assert_eq!(check.outcome, Outcome::Wrong, "{script}");
            assert!(check.detail.contains(reason), "{script}: {}", check.detail);
        }
    }

    #[test]
    fn results_in_order_are_taken_down() {
        let seen =
            gathered("hear; check A.1/0; say '\"Done\"'; hear; check A.2/1; say '\"Recycle\"'", &steps());
        let names: Vec<_> = seen.checks.iter().map(|check| (check.name.as_str(), check.outcome)).collect();
        assert_eq!(names, [("A.1/0", Outcome::Passed), ("A.2/1", Outcome::Passed)]);
    }

    #[test]
    fn an_end_without_results_is_the_items_fault() {
        each_is_wrong("hear; say '\"Done\"'; hear; say '\"Done\"'", " without its outcome");
        each_is_wrong("hear; say '\"Recycle\"'", " without its outcome");
        each_is_wrong("hear; exit 0", "left the process with exit(0)");
        each_is_wrong("hear; check A.9/0", "which is none of A.");
    }

    #[test]
    fn only_the_nonce_of_the_item_in_progress_counts() {
        each_is_wrong("hear; n=guessed; check A.1/0", "has not the nonce of the item in progress");
        each_is_wrong("hear; i=7; check A.1/0", "has not the nonce of the item in progress");
        each_is_wrong("check A.1/0; hear", "has not the nonce of the item in progress");
        let early = "hear; check A.1/0; say '\"Done\"'; i=1; check A.2/1; say '\"Done\"'; hear; sleep 9";
        let checks = gathered(early, &steps()).checks;
        assert_eq!((checks[0].outcome, checks[1].outcome), (Outcome::Passed, Outcome::Wrong), "{checks:#?}");
    }

    #[test]
    fn lines_and_messages_are_bounded() {
        each_is_wrong("hear; head -c 2000000000 /dev/zero >&0", "wrote a line of more than 262144 bytes");
        each_is_wrong("hear; echo begin >&0", "wrote \"begin\" into the pipe of the grader's results");
        let bench =
            [Item { limit: Duration::from_secs(20), ..Item::new("bench/x", 1) }.measuring(&["nf4.*"])];
        let seen = gathered("hear; while :; do j=$((j+1)); number nf4.$j; done", &bench);
        assert_eq!(seen.unmeasured["bench/x"], "reported more than 2000 results");
        assert!(seen.measurements.is_empty(), "nothing of a broken item counts");
    }

    #[test]
    fn an_item_has_one_deadline_whatever_is_said() {
        let bench = [Item::new("bench/x", 1).measuring(&["nf4.*"]).guarded(&["wrong answers"])];
        let seen = gathered("hear; while :; do j=$((j+1)); number nf4.$j; sleep 0.2; done", &bench);
        assert_eq!(seen.unmeasured["bench/x"], "ran past its time limit of 1 s");
        assert!(seen.guards.is_empty(), "a slow machine accuses nobody");
        let seen = gathered("hear; exit 0", &bench);
        assert!(seen.guards.iter().all(|guard| !guard.ran) && seen.guards.len() == 1, "{:?}", seen.guards);
    }

    #[test]
    fn what_an_attempt_started_ends_with_it() {
        let folder = tempfile::tempdir().expect("a folder for a number");
        let file = folder.path().join("id");
        let script = format!(
            "hear; (setsid sh -c 'echo $$ > {}; exec sleep 1000' <&- >/dev/null 2>&1 &); sleep 0.3; check A.1/0; \
             say '\"Done\"'",
            file.display()
        );
        let checks = gathered(&script, &steps()[..1]).checks;
        assert_eq!(checks[0].outcome, Outcome::Passed, "{checks:#?}");
        let id = std::fs::read_to_string(file).expect("the script wrote it");
        assert!(!std::path::Path::new(&format!("/proc/{}", id.trim())).exists(), "process {id} lives on");
    }

    #[test]
    fn what_an_attempt_started_counts_as_its_own() {
        let large = "(setsid sh -c 'x=$(head -c 500000000 /dev/zero | tr \"\\0\" x); sleep 9' &)";
        let many =
            "for j in 1 2 3 4 5 6 7 8 9; do for k in 1 2 3 4 5 6 7 8; do (setsid sleep 9 &); done; done";
        for (script, message) in [(large, "ran past its memory limit"), (many, " processes, 64 are allowed")]
        {
            let item = [Item::new("A.1/0", 20)];
            let checks =
                gathered(&format!("hear; {script}; sleep 9; check A.1/0; say '\"Done\"'"), &item).checks;
            assert!(checks[0].detail.contains(message), "{}", checks[0].detail);
        }
    }

    /// What is said of three ranks in one step that may take so many seconds.
    fn told_of_three(seconds: u64, script: &str) -> String {
        let checks = gathered_of((3, 256 << 20), script, &[Item::new("A.1/0", seconds)]).checks;
        assert_eq!(checks.len(), 1, "one item, one outcome: {checks:#?}");
        assert_eq!(checks[0].outcome == Outcome::Passed, checks[0].detail.is_empty(), "{checks:#?}");
        checks[0].detail.clone()
    }

    #[test]
    fn a_team_is_done_when_all_ranks_are_and_rank_0_reports() {
        let script = r#"hear
            [ "$WORLD_SIZE" = 3 ] && [ "$LOCAL_RANK" = "$RANK" ] || exit 9
            [ "$RANK" != 0 ] || check A.1/0
            say '"Done"'; sleep 1000"#;
        assert_eq!(told_of_three(60, script), "");
        let also = "hear; check A.1/0; say '\"Done\"'; sleep 1000";
        let message = told_of_three(60, also);
        assert!(message.ends_with("reported a result, expected that of rank 0"), "{message}");
        let failed = r#"hear; [ "$RANK" != 2 ] || say '{"Failed":"disagrees"}'; sleep 1000"#;
        assert_eq!(told_of_three(60, failed), "rank 2 disagrees");
    }

    #[test]
    fn a_rank_that_ends_ends_the_team() {
        let folder = tempfile::tempdir().expect("a folder for numbers");
        let script = format!(
            r#"hear; echo $$ > {0}/$RANK; [ "$RANK" != 1 ] || {{ while [ ! -s {0}/0 ] || [ ! -s {0}/2 ]; do :; done; exit 3; }}
            exec sleep 1000"#,
            folder.path().display()
        );
        assert_eq!(told_of_three(60, &script), "rank 1 left the process with exit(3) instead of returning");
        for rank in 0..3 {
            let id = std::fs::read_to_string(folder.path().join(rank.to_string())).expect("its number");
            assert!(!std::path::Path::new(&format!("/proc/{}", id.trim())).exists(), "rank {rank} lives on");
        }
    }

    #[test]
    fn a_team_has_one_deadline() {
        let script = r#"hear; [ "$RANK" = 0 ] || say '"Done"'; sleep 1000"#;
        assert_eq!(told_of_three(1, script), "rank 0 ran past its time limit of 1 s");
    }

    #[test]
    fn the_memory_of_a_team_is_that_of_all_its_ranks() {
        let script = r#"hear; x=$(head -c 60000000 /dev/zero | tr "\0" x)
            [ "$WORLD_SIZE" != 3 ] || sleep 1000
            check A.1/0; say '"Done"'"#;
        let of =
            |ranks| gathered_of((ranks, 150_000_000), script, &[Item::new("A.1/0", 60)]).checks.remove(0);
        assert!(of(3).detail.starts_with("ran past its memory limit: "), "{}", of(3).detail);
        let alone = of(1);
        assert_eq!(alone.outcome, Outcome::Passed, "{}", alone.detail);
    }
}
