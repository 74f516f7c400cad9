//! A pattern as an automaton: see `penstock.topologies.patterns.automaton`. Which of the users' conditions an event fulfils is
//! known in advance, as bits.

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Always,
    Bit(u8),
    Both,
    Either,
    Not,
}

/// Bits joined by "and", "or" and "not", in postfix order.
#[derive(Debug)]
pub struct Condition(Vec<Op>);

impl Condition {
    /// Reads one: 0 and a bit's number, 1 always, 2 both, 3 either, 4 not. `None`: it is none, or too deep.
    pub fn of(code: &[u8]) -> Option<Self> {
        let (mut ops, mut depth, mut bytes) = (vec![], 0u32, code.iter());
        while let Some(&byte) = bytes.next() {
            let (op, before, after) = match byte {
                0 => (Op::Bit(*bytes.next().filter(|&&bit| bit < 64)?), 0, 1),
                1 => (Op::Always, 0, 1),
                2 => (Op::Both, 2, 1),
                3 => (Op::Either, 2, 1),
                4 => (Op::Not, 1, 1),
                _ => return None,
            };
            depth = depth.checked_sub(before)? + after;
            ops.push(op);
            if depth > 64 {
                return None;
            }
        }
        (depth == 1).then_some(Condition(ops))
    }

    #[inline]
    pub fn holds(&self, bits: u64) -> bool {
        // The stack is the lower bits of a number, its top the lowest.
        let mut stack = 0u64;
        for op in &self.0 {
            stack = match *op {
                Op::Always => stack << 1 | 1,
                Op::Bit(bit) => stack << 1 | (bits >> bit & 1),
                Op::Both => (stack >> 1) & !1 | (stack & stack >> 1 & 1),
                Op::Either => (stack >> 1) & !1 | ((stack | stack >> 1) & 1),
                Op::Not => stack ^ 1,
            };
        }
        stack & 1 == 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Take,
    Ignore,
    Proceed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Normal,
    Final,
    Stop,
    Pending,
    Ending,
}

#[derive(Debug)]
pub struct Edge {
    pub action: Action,
    pub target: usize,
    pub condition: Condition,
}

#[derive(Debug)]
pub struct State {
    pub stage: u32,
    pub kind: Kind,
    /// An event is taken here only less than this after the one before it.
    pub gap: Option<i64>,
    /// How long after the last event taken it can still lead to a match.
    pub patience: Option<i64>,
    pub edges: Vec<Edge>,
}

/// What happens to other matches once one is found: see `penstock.topologies.patterns.skip`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skip {
    No,
    ToNext,
    PastLast,
    /// Of this stage.
    ToFirst(u32),
    ToLast(u32),
}

#[derive(Debug)]
pub struct Automaton {
    pub states: Vec<State>,
    pub start: usize,
    pub within: Option<i64>,
    pub skip: Skip,
    /// By state: whether its partial matches have the same open edges for an event.
    pub alike: Vec<bool>,
}

impl Automaton {
    /// `None`: an edge leads nowhere.
    pub fn new(states: Vec<State>, start: usize, within: Option<i64>, skip: Skip) -> Option<Self> {
        let targets = states.iter().flat_map(|state| state.edges.iter().map(|edge| edge.target));
        if start >= states.len() || targets.max().is_some_and(|target| target >= states.len()) {
            return None;
        }
        let mut made = Automaton { states, start, within, skip, alike: vec![] };
        made.alike = (0..made.states.len()).map(|state| made.is_alike(state)).collect();
        Some(made)
    }

    fn is_alike(&self, start: usize) -> bool {
        let (mut seen, mut at) = (vec![start], 0);
        while at < seen.len() {
            let state = &self.states[seen[at]];
            if state.gap.is_some() {
                return false;
            }
            for edge in &state.edges {
                if edge.action == Action::Proceed && !seen.contains(&edge.target) {
                    seen.push(edge.target);
                }
            }
            at += 1;
        }
        true
    }

    /// The edges that an event may go along from a state, as places of states and of their edges. Loops first, then what
    /// follows. `late`: how long ago the last event was taken, of a partial match.
    pub fn open(&self, from: usize, bits: u64, ago: Option<i64>, into: &mut Vec<(usize, usize)>) {
        into.clear();
        let mut seen = vec![from];
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            let state = &self.states[at];
            let late = matches!((ago, state.gap), (Some(ago), Some(gap)) if ago >= gap);
            for (place, edge) in state.edges.iter().enumerate() {
                if edge.action == Action::Proceed {
                    if !seen.contains(&edge.target) && edge.condition.holds(bits) {
                        seen.push(edge.target);
                        waiting.push(edge.target);
                    }
                } else if !(late && edge.action == Action::Take) && edge.condition.holds(bits) {
                    into.push((at, place));
                }
            }
        }
    }

    /// The ends that a path which has come to a state can proceed to: it is a match, or will be if nothing comes.
    pub fn settled(&self, from: usize, bits: u64) -> Vec<usize> {
        let (mut found, mut seen, mut waiting) = (vec![], vec![from], vec![from]);
        while let Some(at) = waiting.pop() {
            for edge in &self.states[at].edges {
                if edge.action == Action::Proceed && !seen.contains(&edge.target) && edge.condition.holds(bits) {
                    seen.push(edge.target);
                    match self.states[edge.target].kind {
                        Kind::Final | Kind::Pending | Kind::Ending => found.push(edge.target),
                        _ => waiting.push(edge.target),
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(code: &[u8], bits: u64) -> bool {
        Condition::of(code).unwrap().holds(bits)
    }

    #[test]
    fn conditions_are_logic_over_bits() {
        assert!(holds(&[1], 0));
        assert!(holds(&[0, 3], 8) && !holds(&[0, 3], 7));
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let bits = a | b << 1;
            assert_eq!(holds(&[0, 0, 0, 1, 2], bits), (a & b) == 1);
            assert_eq!(holds(&[0, 0, 0, 1, 3], bits), (a | b) == 1);
            assert_eq!(holds(&[0, 0, 4, 0, 1, 4, 2, 4], bits), (a | b) == 1);
            assert_eq!(holds(&[1, 0, 0, 0, 1, 2, 2], bits), (a & b) == 1);
            assert_eq!(holds(&[1, 4, 0, 0, 0, 1, 3, 3], bits), (a | b) == 1);
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for code in [&[][..], &[0], &[0, 64], &[2], &[1, 2], &[1, 1], &[5], &[4]] {
            assert!(Condition::of(code).is_none(), "{code:?}");
        }
        assert!(Condition::of(&[1; 65]).is_none());
        let deep: Vec<u8> = [vec![1; 64], vec![2; 63]].concat();
        assert!(holds(&deep, 0));
    }

    #[test]
    fn edges_lead_to_states() {
        let edge = |target| Edge { action: Action::Take, target, condition: Condition::of(&[1]).unwrap() };
        let state =
            |target| State { stage: 0, kind: Kind::Normal, gap: None, patience: None, edges: vec![edge(target)] };
        assert!(Automaton::new(vec![state(1)], 0, None, Skip::No).is_none());
        assert!(Automaton::new(vec![state(0)], 1, None, Skip::No).is_none());
        assert!(Automaton::new(vec![state(0)], 0, None, Skip::No).is_some());
    }
}
