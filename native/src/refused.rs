//! Why something was refused, for the caller that turns it into an exception.

/// An argument that cannot be used, or more memory than there is.
#[derive(Debug, PartialEq)]
pub enum Refused {
    Value(String),
    Index(String),
    /// For cases in which Rust would end the process: allocations whose size comes from outside.
    NoRoom,
}

/// `NoRoom`, whatever the allocator said.
pub fn no_room<E>(_: E) -> Refused {
    Refused::NoRoom
}

/// An empty vector with this capacity.
pub fn room_for<T>(count: usize) -> Result<Vec<T>, Refused> {
    let mut empty = vec![];
    empty.try_reserve_exact(count).map_err(no_room)?;
    Ok(empty)
}

/// This many copies of the value.
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, Refused> {
    let mut column = room_for(count)?;
    column.resize(count, value);
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_room_for_is_refused() {
        assert_eq!(room_for::<u64>(usize::MAX), Err(Refused::NoRoom));
        assert_eq!(filled(1u8, usize::MAX), Err(Refused::NoRoom));
        assert_eq!(filled(7u8, 3), Ok(vec![7, 7, 7]));
        assert!(room_for::<u64>(5).is_ok_and(|room| room.is_empty() && room.capacity() >= 5));
    }
}
