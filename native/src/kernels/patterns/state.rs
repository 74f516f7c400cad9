//! The partial matches of a key, and their bytes: see `penstock.topologies.patterns.state`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::kernels::tuples::{Scalar, Unread, put, put_array};

const VERSION: i64 = 1;
pub const NEVER: i64 = i64::MAX;

/// An event that paths hold, and its number among those of the key.
#[derive(Debug)]
pub struct Kept {
    pub number: i64,
    pub data: Arc<[u8]>,
}

/// An event in a path, taken for a stage, after those of the parent.
#[derive(Debug)]
pub struct Node {
    pub stage: u32,
    pub event: Arc<Kept>,
    pub parent: Option<Arc<Node>>,
    /// The number of the path's first event.
    pub first: i64,
}

/// By identity.
pub fn same_node(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// The nodes of a path, oldest first.
pub fn path(node: &Arc<Node>) -> Vec<&Arc<Node>> {
    let mut found = vec![node];
    while let Some(parent) = &found[found.len() - 1].parent {
        found.push(parent);
    }
    found.reverse();
    found
}

/// A path at a state. Of a match that waits for earlier partial ones the state means nothing.
#[derive(Clone, Debug)]
pub struct Partial {
    pub state: usize,
    /// The times of the first and the last event.
    pub start: i64,
    pub last: i64,
    pub node: Arc<Node>,
}

#[derive(Debug, Default)]
pub struct KeyState {
    pub next_event: i64,
    pub partials: Vec<Partial>,
    pub held: Vec<Partial>,
    pub alarm: Option<i64>,
}

impl KeyState {
    /// Whether it can be deleted without loss.
    pub fn is_empty(&self) -> bool {
        self.partials.is_empty() && self.held.is_empty()
    }
}

struct Writer<'a> {
    nodes: Vec<(u32, i64, i64)>,
    events: BTreeMap<i64, &'a [u8]>,
    places: HashMap<usize, i64>,
}

impl<'a> Writer<'a> {
    fn place(&mut self, node: &'a Arc<Node>) -> i64 {
        let mut chain = vec![];
        let mut at = Some(node);
        while let Some(one) = at.filter(|one| !self.places.contains_key(&same_node(one))) {
            chain.push(one);
            at = one.parent.as_ref();
        }
        for new in chain.into_iter().rev() {
            let parent = new.parent.as_ref().map_or(-1, |parent| self.places[&same_node(parent)]);
            self.places.insert(same_node(new), self.nodes.len() as i64);
            self.nodes.push((new.stage, new.event.number, parent));
            self.events.insert(new.event.number, &new.event.data);
        }
        self.places[&same_node(node)]
    }
}

/// Adds the bytes of a state. `None`: it is longer than MessagePack has lengths.
pub fn write(out: &mut Vec<u8>, state: &KeyState, shape: i64) -> Option<()> {
    let mut writer = Writer { nodes: vec![], events: BTreeMap::new(), places: HashMap::new() };
    let partials: Vec<i64> = state.partials.iter().map(|p| writer.place(&p.node)).collect();
    let held: Vec<i64> = state.held.iter().map(|p| writer.place(&p.node)).collect();
    put_array(out, 8)?;
    put_numbers(out, &[VERSION, shape, state.next_event])?;
    put(out, state.alarm.map_or(Scalar::Null, Scalar::Int))?;
    put_array(out, writer.events.len())?;
    for (&number, data) in &writer.events {
        put_array(out, 2)?;
        put(out, Scalar::Int(number))?;
        put(out, Scalar::Bytes(data))?;
    }
    put_array(out, writer.nodes.len())?;
    for &(stage, number, parent) in &writer.nodes {
        put_array(out, 3)?;
        put_numbers(out, &[stage.into(), number, parent])?;
    }
    put_array(out, partials.len())?;
    for (p, node) in state.partials.iter().zip(partials) {
        put_array(out, 4)?;
        put_numbers(out, &[p.state as i64, p.start, p.last, node])?;
    }
    put_array(out, held.len())?;
    for (p, node) in state.held.iter().zip(held) {
        put_array(out, 3)?;
        put_numbers(out, &[p.start, p.last, node])?;
    }
    Some(())
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[i64]) -> Option<()> {
    numbers.iter().try_for_each(|&number| put(out, Scalar::Int(number)))
}

fn number(unread: &mut Unread) -> Option<i64> {
    match unread.scalar()? {
        Scalar::Int(number) => Some(number),
        _ => None,
    }
}

fn numbers<const N: usize>(unread: &mut Unread) -> Option<[i64; N]> {
    if unread.array()? != N {
        return None;
    }
    let mut found = [0; N];
    for one in &mut found {
        *one = number(unread)?;
    }
    Some(found)
}

/// Reads a state of an automaton with these numbers of states and stages. `None`: Python must read it, and say what is
/// wrong.
pub fn read(data: &[u8], shape: i64, states: usize, stages: usize) -> Option<KeyState> {
    let mut unread = Unread(data);
    if unread.array()? != 8 || number(&mut unread)? != VERSION || number(&mut unread)? != shape {
        return None;
    }
    let next_event = number(&mut unread)?;
    let alarm = match unread.scalar()? {
        Scalar::Null => None,
        Scalar::Int(time) => Some(time),
        _ => return None,
    };
    let mut events: HashMap<i64, Arc<Kept>> = HashMap::new();
    for _ in 0..unread.array()? {
        if unread.array()? != 2 {
            return None;
        }
        let number = number(&mut unread)?;
        events.insert(number, Arc::new(Kept { number, data: unread.bytes()?.into() }));
    }
    let mut nodes: Vec<Arc<Node>> = vec![];
    for _ in 0..unread.array()? {
        let [stage, number, parent] = numbers(&mut unread)?;
        let parent = if parent < 0 { None } else { Some(nodes.get(parent as usize)?.clone()) };
        let stage = u32::try_from(stage).ok().filter(|&stage| (stage as usize) < stages)?;
        let first = parent.as_ref().map_or(number, |parent| parent.first);
        nodes.push(Arc::new(Node { stage, event: events.get(&number)?.clone(), parent, first }));
    }
    let node_at = |place: i64| nodes.get(usize::try_from(place).ok()?).cloned();
    let (mut partials, mut held) = (vec![], vec![]);
    for _ in 0..unread.array()? {
        let [state, start, last, node] = numbers(&mut unread)?;
        let state = usize::try_from(state).ok().filter(|&state| state < states)?;
        partials.push(Partial { state, start, last, node: node_at(node)? });
    }
    for _ in 0..unread.array()? {
        let [start, last, node] = numbers(&mut unread)?;
        held.push(Partial { state: 0, start, last, node: node_at(node)? });
    }
    unread.end()?;
    Some(KeyState { next_event, partials, held, alarm })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: i64, stage: u32, parent: Option<&Arc<Node>>) -> Arc<Node> {
        let event = Arc::new(Kept { number, data: (*format!("e{number}").as_bytes()).into() });
        let first = parent.map_or(number, |parent| parent.first);
        Arc::new(Node { stage, event, parent: parent.cloned(), first })
    }

    fn example() -> KeyState {
        let first = node(3, 0, None);
        let (second, other) = (node(4, 1, Some(&first)), node(7, 1, Some(&first)));
        let partial = |state, last, node: &Arc<Node>| Partial { state, start: 10, last, node: node.clone() };
        KeyState {
            next_event: 300,
            partials: vec![partial(2, 20, &second), partial(1, 10, &first)],
            held: vec![partial(0, 70, &other)],
            alarm: Some(1 << 40),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_with_shared_paths() {
        let mut data = vec![];
        write(&mut data, &example(), 0xfeed_beef).unwrap();
        let back = read(&data, 0xfeed_beef, 3, 2).unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", example()));
        assert_eq!(same_node(back.partials[0].node.parent.as_ref().unwrap()), same_node(&back.partials[1].node));
        let numbers: Vec<i64> = path(&back.held[0].node).iter().map(|node| node.event.number).collect();
        assert_eq!(numbers, [3, 7]);
        let mut again = vec![];
        write(&mut again, &back, 0xfeed_beef).unwrap();
        assert_eq!(again, data);
    }

    #[test]
    fn what_is_not_of_this_pattern_is_left_to_python() {
        let mut data = vec![];
        write(&mut data, &example(), 5).unwrap();
        for (shape, states, stages) in [(6, 3, 2), (5, 2, 2), (5, 3, 1)] {
            assert!(read(&data, shape, states, stages).is_none());
        }
        for end in 0..data.len() {
            assert!(read(&data[..end], 5, 3, 2).is_none());
        }
        assert!(read(&[&data[..], &[0]].concat(), 5, 3, 2).is_none());
    }
}
