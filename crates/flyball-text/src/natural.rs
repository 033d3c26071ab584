//! Natural order: numbers in names by value.

use std::cmp::Ordering;

/// A name in natural order: `cpu2` before `cpu10`, `policy9/x` before `policy10/a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Natural<T>(pub T);

impl<T: AsRef<str> + Eq> Ord for Natural<T> {
    fn cmp(&self, other: &Natural<T>) -> Ordering {
        let (mut left, mut right) = (self.0.as_ref(), other.0.as_ref());
        while !left.is_empty() && !right.is_empty() {
            let (a, b) = (take(&mut left), take(&mut right));
            // Of two numbers without leading zeros, the one with more digits is larger.
            let significant = |(_, digits): (&str, &str)| digits.trim_start_matches('0').len();
            let order = a.0.cmp(b.0).then(significant(a).cmp(&significant(b)));
            let order = order.then(a.1.trim_start_matches('0').cmp(b.1.trim_start_matches('0')));
            if order.is_ne() {
                return order;
            }
        }
        // Equal up to leading zeros, or one is the beginning of the other.
        left.len().cmp(&right.len()).then_with(|| self.0.as_ref().cmp(other.0.as_ref()))
    }
}

impl<T: AsRef<str> + Eq> PartialOrd for Natural<T> {
    fn partial_cmp(&self, other: &Natural<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Takes text and the digits behind it from the front of `rest`.
fn take<'a>(rest: &mut &'a str) -> (&'a str, &'a str) {
    let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (text, tail) = rest.split_at(digits);
    let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (number, tail) = tail.split_at(end);
    *rest = tail;
    (text, number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_sort_by_value() {
        let sorted = [
            "",
            "cpu",
            "cpu0",
            "cpu2",
            "cpu10",
            "cpu18446744073709551616",
            "cpufreq",
            "policy9/a",
            "policy9/x",
            "policy10/a",
            "x01",
            "x1y",
        ];
        let mut names = sorted.map(Natural);
        names.reverse();
        names.sort();
        assert_eq!(names, sorted.map(Natural));
    }

    proptest! {
        #[test]
        fn the_order_is_total(names in prop::collection::vec("[a1/0]{0,6}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|at| Natural(&names[at]));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b).is_eq(), a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
