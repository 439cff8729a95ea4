//! Helpers for the tests of the tree: scans, a walker that checks the shape of a tree, and keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use weft_htm::word::Ordering;

use super::super::{IndexKey, IndexWorker, LongKey, NodeVersion};
use super::node::{
    INNER_CAPACITY, Inner, LEAF_CAPACITY, LOCKED, Leaf, Node, OBSOLETE, load_locked,
};
use super::{BPlusTree, Direction, LeafHint, Page};

/// A noted version in a form that sets can hold.
pub(super) type NotedVersion = (usize, u64);

pub(super) fn noted(version: NodeVersion) -> NotedVersion {
    (version.word.as_ptr().addr(), version.version)
}

/// Returns whether a node still has the version that was noted. The caller must still be pinned.
pub(super) fn is_unchanged(version: NodeVersion) -> bool {
    // SAFETY: the caller has been pinned since it noted the version.
    unsafe { version.word.as_ref() }.load(Ordering::Acquire) == version.version
}

/// The result of a whole scan.
pub(super) struct Scan {
    pub(super) addresses: Vec<u64>,
    pub(super) versions: Vec<NodeVersion>,
}

pub(super) fn scan<K: IndexKey>(
    tree: &BPlusTree<K>,
    from: Bound<&K>,
    to: Bound<&K>,
    direction: Direction,
    hint: &mut LeafHint<K>,
    worker: &impl IndexWorker,
) -> Scan {
    let mut scan = Scan { addresses: Vec::new(), versions: Vec::new() };
    let mut page = Page::new();
    let mut from = Some(from.cloned());
    while let Some(start) = from {
        scan.versions.push(tree.read_page(start.as_ref(), to, direction, &mut page, hint, worker));
        scan.addresses.extend(page.addresses());
        from = page.take_next();
    }
    scan
}

/// Checks the shape of a tree that no thread is changing, and returns its keys and addresses.
pub(super) fn verify<K: IndexKey>(tree: &mut BPlusTree<K>) -> BTreeMap<K, u64> {
    let mut walk = Walk { content: BTreeMap::new(), leaves: Vec::new() };
    assert_eq!(tree.root.version.load(Ordering::Relaxed) & LOCKED, 0);
    let height = tree.root.height.load(Ordering::Relaxed);
    walk.subtree(tree.root.node.load(Ordering::Relaxed), height, &Bound::Unbounded, None);
    for (index, leaf) in walk.leaves.iter().enumerate() {
        // SAFETY: the tree is not shared now.
        let next = unsafe { (**leaf).next.load(Ordering::Relaxed) };
        let expected = walk.leaves.get(index + 1).copied().unwrap_or(std::ptr::null());
        assert_eq!(next.cast_const(), expected, "the leaves are chained in order");
        // SAFETY: as above.
        let is_empty = unsafe { (**leaf).count() == 0 };
        assert!(!is_empty || walk.leaves.len() == 1, "an empty leaf was left in the tree");
    }
    let mut listed = BTreeMap::new();
    tree.for_each(|key, address| assert_eq!(listed.insert(key.clone(), address), None));
    assert_eq!(listed, walk.content);
    walk.content
}

struct Walk<K: IndexKey> {
    content: BTreeMap<K, u64>,
    leaves: Vec<*const Leaf<K>>,
}

impl<K: IndexKey> Walk<K> {
    fn subtree(&mut self, node: *const Node, height: u64, low: &Bound<K>, high: Option<&K>) {
        // SAFETY: the tree is not shared now, so every node that can be reached is alive. By the height the
        // kind of the node is known.
        unsafe {
            let version = (*node).version.load(Ordering::Relaxed);
            assert_eq!(version & (LOCKED | OBSOLETE), 0);
            match height {
                0 => self.leaf(&*node.cast::<Leaf<K>>(), low, high),
                _ => self.inner(&*node.cast::<Inner<K>>(), height, low, high),
            }
        }
    }

    fn leaf(&mut self, leaf: &Leaf<K>, low: &Bound<K>, high: Option<&K>) {
        let fence = load_locked::<K>(&leaf.low);
        match low {
            Bound::Included(low) => assert_eq!(&fence, low, "the low fence is the separator"),
            _ => assert_eq!(fence, super::node::least(), "the first leaf begins at the least key"),
        }
        match high {
            Some(high) => {
                assert!(!leaf.next.load(Ordering::Relaxed).is_null());
                assert_eq!(&load_locked::<K>(&leaf.high), high, "the high fence is the separator");
            }
            None => assert!(leaf.next.load(Ordering::Relaxed).is_null()),
        }
        assert!(leaf.count() <= LEAF_CAPACITY);
        let mut previous = None;
        for index in 0..leaf.count() {
            let key = load_locked::<K>(&leaf.keys[index]);
            assert!(key >= fence && high.is_none_or(|high| key < *high), "{key:?} out of fences");
            assert!(previous.is_none_or(|previous| previous < key), "keys in order");
            self.content.insert(key.clone(), leaf.addresses[index].load(Ordering::Relaxed));
            previous = Some(key);
        }
        self.leaves.push(leaf);
    }

    fn inner(&mut self, inner: &Inner<K>, height: u64, low: &Bound<K>, high: Option<&K>) {
        let count = inner.count();
        assert!((2..=INNER_CAPACITY).contains(&count), "{count} children");
        let separators: Vec<K> =
            inner.separators[..count - 1].iter().map(load_locked::<K>).collect();
        assert!(separators.is_sorted_by(|left, right| left < right));
        for index in 0..count {
            let low = match index {
                0 => low.clone(),
                _ => Bound::Included(separators[index - 1].clone()),
            };
            let high = separators.get(index).or(high);
            self.subtree(inner.child(index), height - 1, &low, high);
        }
    }
}

/// A form of keys, with keys made from numbers. Some share prefixes, and some touch the limits of the form.
pub(super) trait TestKey: IndexKey {
    fn from_number(number: u64) -> Self;
}

impl TestKey for u64 {
    fn from_number(number: u64) -> u64 {
        number
    }
}

impl TestKey for u128 {
    /// Some keys differ only in the upper word, some only in the lower.
    fn from_number(number: u64) -> u128 {
        u128::from(number / 8) << 64 | u128::from(number % 8)
    }
}

impl TestKey for LongKey {
    /// Lengths from 0 to 80 bytes; runs of keys that agree in the first sixteen bytes, keys
    /// that are the beginning of others, and keys that differ only in zeros at the end.
    fn from_number(number: u64) -> LongKey {
        let length = (number % 5 * 6) as usize + if number.is_multiple_of(97) { 60 } else { 0 };
        let mut bytes = (number / 40).to_be_bytes()[4..].to_vec();
        bytes.resize(length.max(4), 0);
        bytes.extend_from_slice(&[0, 1, 2][..(number % 3) as usize]);
        if number.is_multiple_of(7) {
            bytes.extend_from_slice(&(number / 5).to_be_bytes());
        }
        LongKey::from(bytes.as_slice())
    }
}
