//! What an event, or the time, does to the partial matches of a key: see `penstock.topologies.patterns.matcher`, which is the
//! reference.

use std::collections::HashSet;
use std::sync::Arc;

use super::automaton::{Action, Automaton, Kind, Skip};
use super::state::{Kept, KeyState, NEVER, Node, Partial, path, same_node};

/// A match, or a partial one that timed out.
pub struct Found {
    pub node: Arc<Node>,
    pub ts: i64,
    pub timed_out: bool,
}

/// An event. `data` gives its bytes, when a path first holds it.
pub struct Event<'a> {
    pub ts: i64,
    pub bits: u64,
    pub data: &'a mut dyn FnMut() -> Arc<[u8]>,
}

/// Partial matches in their order, each once, and of each the place that it had before, if it is unchanged.
#[derive(Default)]
struct Unique {
    all: Vec<(Partial, Option<usize>)>,
    seen: HashSet<(usize, usize)>,
}

/// Up to this many are searched one by one.
const FEW: usize = 16;

impl Unique {
    fn add(&mut self, partial: Partial, before: Option<usize>) {
        let key = |partial: &Partial| (partial.state, same_node(&partial.node));
        if self.all.len() < FEW {
            if self.all.iter().any(|(one, _)| key(one) == key(&partial)) {
                return;
            }
        } else {
            if self.seen.is_empty() {
                self.seen = self.all.iter().map(|(one, _)| key(one)).collect();
            }
            if !self.seen.insert(key(&partial)) {
                return;
            }
        }
        self.all.push((partial, before));
    }
}

fn add_found(found: &mut Vec<Partial>, new: &Partial) {
    if !found.iter().any(|one| same_node(&one.node) == same_node(&new.node)) {
        found.push(new.clone());
    }
}

/// The nodes that an event made, by stage and parent.
#[derive(Default)]
struct Taken {
    kept: Option<Arc<Kept>>,
    nodes: Vec<((u32, usize), Arc<Node>)>,
}

impl Taken {
    fn node(&mut self, stage: u32, parent: Option<&Arc<Node>>, number: i64, event: &mut Event) -> Arc<Node> {
        let at = (stage, parent.map_or(0, same_node));
        if let Some((_, node)) = self.nodes.iter().find(|(key, _)| *key == at) {
            return node.clone();
        }
        let kept = self.kept.get_or_insert_with(|| Arc::new(Kept { number, data: (event.data)() }));
        let first = parent.map_or(number, |parent| parent.first);
        let node = Arc::new(Node { stage, event: kept.clone(), parent: parent.cloned(), first });
        self.nodes.push((at, node.clone()));
        node
    }
}

impl Automaton {
    fn ends_at(&self, partial: &Partial) -> i64 {
        let end = self.within.map_or(NEVER, |within| partial.start.saturating_add(within));
        match self.states[partial.state].patience {
            None => end,
            Some(patience) => end.min(partial.last.saturating_add(patience)),
        }
    }

    /// When the first partial match times out; `None`: never.
    pub fn next_end(&self, state: &KeyState) -> Option<i64> {
        state.partials.iter().map(|partial| self.ends_at(partial)).min().filter(|&end| end != NEVER)
    }

    /// Sets the time. Returns whether anything changed.
    pub fn advance(&self, state: &mut KeyState, now: i64, timeouts: &mut Vec<Found>, out: &mut Vec<Found>) -> bool {
        if !state.partials.iter().any(|partial| self.ends_at(partial) <= now) {
            return false;
        }
        let (mut certain, mut left) = (vec![], vec![]);
        for partial in std::mem::take(&mut state.partials) {
            let end = self.ends_at(&partial);
            if end > now {
                left.push(partial);
                continue;
            }
            match self.states[partial.state].kind {
                Kind::Pending => certain.push((partial, Some(end))),
                Kind::Ending => certain.push((partial, None)),
                _ => timeouts.push(Found { node: partial.node, ts: end, timed_out: true }),
            }
        }
        self.skip(state, certain, left, out);
        true
    }

    /// Takes an event; the time has come to it. Returns whether anything changed.
    pub fn step(&self, state: &mut KeyState, event: &mut Event, out: &mut Vec<Found>) -> bool {
        let number = state.next_event;
        let opened = self.opened(state, event.bits);
        let idle = |at: usize| opened.iter().any(|(index, edges)| *index == at && self.only_waits(edges, at));
        let waiting = state.partials.iter().all(|partial| idle(partial.state));
        let (mut taken, mut after, mut found) = (Taken::default(), Unique::default(), vec![]);
        let mut edges = vec![];
        for place in (0..state.partials.len()).filter(|_| !waiting) {
            let partial = &state.partials[place];
            if idle(partial.state) {
                after.add(partial.clone(), Some(place));
                continue;
            }
            match opened.iter().find(|(index, _)| *index == partial.state) {
                Some((_, known)) => edges.clone_from(known),
                None => self.open(partial.state, event.bits, Some(event.ts - partial.last), &mut edges),
            }
            self.follow(Some((partial, place)), &edges, event, number, &mut taken, &mut after, &mut found);
        }
        self.open(self.start, event.bits, None, &mut edges);
        self.follow(None, &edges, event, number, &mut taken, &mut after, &mut found);
        if waiting && found.is_empty() {
            if after.all.is_empty() {
                return false;
            }
            state.partials.extend(after.all.into_iter().map(|(partial, _)| partial));
            state.next_event = number + 1;
            return true;
        }
        if !waiting && taken.nodes.is_empty() && found.is_empty() && same(state, &after) {
            return false;
        }
        let mut left = if waiting { std::mem::take(&mut state.partials) } else { vec![] };
        left.extend(after.all.into_iter().map(|(partial, _)| partial));
        state.next_event = number + 1;
        self.skip(state, found.into_iter().map(|partial| (partial, None)).collect(), left, out);
        true
    }

    /// The open edges of the states in which partial matches are alike.
    fn opened(&self, state: &KeyState, bits: u64) -> Vec<(usize, Vec<(usize, usize)>)> {
        let mut opened: Vec<(usize, Vec<(usize, usize)>)> = vec![];
        for partial in &state.partials {
            if self.alike[partial.state] && !opened.iter().any(|(index, _)| *index == partial.state) {
                let mut edges = vec![];
                self.open(partial.state, bits, None, &mut edges);
                opened.push((partial.state, edges));
            }
        }
        opened
    }

    /// Whether these open edges leave a partial match unchanged in its state.
    fn only_waits(&self, edges: &[(usize, usize)], index: usize) -> bool {
        let [(at, place)] = edges else {
            return false;
        };
        let edge = &self.states[*at].edges[*place];
        edge.action == Action::Ignore && edge.target == index
    }

    /// What becomes of a partial match, with its place, or of the start, along these edges.
    #[allow(clippy::too_many_arguments)]
    fn follow(
        &self,
        from: Option<(&Partial, usize)>,
        edges: &[(usize, usize)],
        event: &mut Event,
        number: i64,
        taken: &mut Taken,
        after: &mut Unique,
        found: &mut Vec<Partial>,
    ) {
        let (mut stopped, mut reached) = (false, vec![]);
        for &(at, place) in edges {
            let (source, edge) = (&self.states[at], &self.states[at].edges[place]);
            let kind = self.states[edge.target].kind;
            let new = match (edge.action, from) {
                (Action::Ignore, None) => continue,
                (Action::Ignore, Some((partial, before))) => {
                    let same = partial.state == edge.target;
                    (Partial { state: edge.target, ..partial.clone() }, same.then_some(before))
                }
                _ if kind == Kind::Stop => {
                    stopped = true;
                    continue;
                }
                _ => {
                    let node = taken.node(source.stage, from.map(|(partial, _)| &partial.node), number, event);
                    let start = from.map_or(event.ts, |(partial, _)| partial.start);
                    (Partial { state: edge.target, start, last: event.ts, node }, None)
                }
            };
            match kind {
                Kind::Final => add_found(found, &new.0),
                Kind::Stop => stopped = true,
                _ => {
                    let settled =
                        if edge.action == Action::Take { self.settled(edge.target, event.bits) } else { vec![] };
                    let path = new.0.clone();
                    reached.push(new);
                    for beyond in settled {
                        if self.states[beyond].kind == Kind::Final {
                            add_found(found, &path);
                        } else {
                            reached.push((Partial { state: beyond, ..path.clone() }, None));
                        }
                    }
                }
            }
        }
        if !stopped {
            reached.into_iter().for_each(|(partial, before)| after.add(partial, before));
        }
    }

    /// Hands out the matches that wait for no earlier partial one, and keeps the others. Of a match that became certain, the
    /// time at which it did.
    fn skip(
        &self,
        state: &mut KeyState,
        found: Vec<(Partial, Option<i64>)>,
        mut partials: Vec<Partial>,
        out: &mut Vec<Found>,
    ) {
        let mut held: Vec<(Partial, Option<i64>)> =
            std::mem::take(&mut state.held).into_iter().map(|p| (p, None)).collect();
        held.extend(found);
        held.sort_by_key(|(partial, _)| partial.node.first);
        while let Some((first, _)) = held.first() {
            let waits = |partial: &Partial| partial.node.first < first.node.first;
            if self.skip != Skip::No && partials.iter().any(waits) {
                break;
            }
            let (found, at) = held.remove(0);
            let bar = self.bar(&found.node);
            out.push(Found { ts: at.unwrap_or(found.last), node: found.node, timed_out: false });
            if let Some(bar) = bar {
                held.retain(|(partial, _)| partial.node.first >= bar);
                partials.retain(|partial| partial.node.first >= bar);
            }
        }
        state.partials = partials;
        state.held = held.into_iter().map(|(partial, _)| partial).collect();
        if state.is_empty() {
            state.next_event = 0;
        }
    }

    /// The first event with which other matches may still begin once this one is handed out; `None`: any.
    fn bar(&self, node: &Arc<Node>) -> Option<i64> {
        let (stage, last) = match self.skip {
            Skip::No => return None,
            Skip::ToNext => return Some(node.first + 1),
            Skip::PastLast => return Some(node.event.number + 1),
            Skip::ToFirst(stage) => (stage, false),
            Skip::ToLast(stage) => (stage, true),
        };
        let path = path(node);
        let mut there = path.iter().filter(|node| node.stage == stage).map(|node| node.event.number);
        if last { there.next_back() } else { there.next() }
    }
}

fn same(state: &KeyState, after: &Unique) -> bool {
    state.partials.len() == after.all.len() && after.all.iter().enumerate().all(|(at, (_, before))| *before == Some(at))
}
