//! One reading of a machine: flat numbers in the order of a [`Layout`].

use serde::{Deserialize, Serialize};

use crate::{Layout, Quantity};

/// Marks a value that was not read. No counter reaches it.
pub const ABSENT: u64 = u64::MAX;

/// One reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// On the machine's monotonic clock, ns: when the reading began.
    pub at: u64,
    /// Nanoseconds since 1970. A simulated machine's clock begins at its boot.
    pub wall: u64,
    pub cost: Cost,
    /// In the layout's order. [`ABSENT`] if there is no value.
    pub values: Vec<u64>,
}

/// Cost of a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the reading thread, ns.
    pub cpu: u64,
    /// CPUs that were interrupted to read their counters.
    pub touched: u32,
    /// CPUs whose reason registers were read.
    pub asked: u32,
    /// Interrupts that the reading caused on CPUs, including those for package counters.
    pub interrupts: u32,
}

impl Sample {
    /// Returns the value at an index of [`Layout::cpus`] or [`Layout::packages`], or at 0 for the
    /// machine's.
    pub fn get(&self, layout: &Layout, quantity: Quantity, index: usize) -> Option<u64> {
        let (start, field) = layout.place(quantity)?;
        if index >= layout.instances(field.scope) {
            return None;
        }
        let value = *self.values.get(start + index)?;
        (value != ABSENT).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Field, Machine, Scope, Unit};

    fn layout() -> Layout {
        let cpu = |number| Cpu {
            number,
            package: Some(0),
            die: None,
            core: None,
            core_type: None,
            policy: None,
            highest: None,
            base: None,
            reference: None,
            is_isolated: false,
        };
        let field = |quantity, scope| Field { quantity, scope, unit: Unit::Count, wraps_after: 64 };
        Layout {
            machine: Machine {
                name: "made".into(),
                kind: flyball_host::Kind::Recorded,
                vendor: flyball_host::Vendor::Intel,
                family: None,
                model: None,
                model_name: None,
                kernel: String::new(),
                driver: None,
                throttle_temperature: None,
                idle_states: Vec::new(),
                idle_exits_us: Vec::new(),
                governors: Vec::new(),
            },
            cpus: vec![cpu(0), cpu(7)],
            packages: Vec::new(),
            fields: vec![field(Quantity::IdleTime(3), Scope::Cpu), field(Quantity::Aperf, Scope::Cpu)],
            missing: Vec::new(),
        }
    }

    #[test]
    fn values_stand_by_field_and_then_by_cpu() {
        let layout = layout();
        let sample = Sample { at: 0, wall: 0, cost: Cost::default(), values: vec![1, 2, 3, ABSENT] };
        assert_eq!(layout.values(), 4);
        let get = |quantity, index| sample.get(&layout, quantity, index);
        assert_eq!(get(Quantity::IdleTime(3), 1), Some(2));
        assert_eq!(get(Quantity::Aperf, 0), Some(3));
        assert_eq!(get(Quantity::Aperf, 1), None);
        assert_eq!(get(Quantity::Aperf, 2), None);
        assert_eq!(get(Quantity::Mperf, 0), None);
        assert_eq!(layout.index_of(7), Some(1));
    }

    #[test]
    fn a_layout_goes_into_a_file_and_comes_back() {
        let layout = layout();
        let text = serde_json::to_string(&layout).unwrap();
        assert!(text.contains(r#"{"idle-time":3}"#), "{text}");
        assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), layout);
    }
}
