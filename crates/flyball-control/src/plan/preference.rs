//! The numbers of the preference words: from the register if it can be read, otherwise from the
//! drivers' tables.

use flyball_host::{CpuList, Epp};

use crate::{At, CoreType, Id, Place, ReadError, Snapshot, Value, Vendor};

/// Models with separate numbers for preference words (arch/x86/include/asm/intel-family.h).
const ALDER_LAKE_L: u32 = 0x9a;
const METEOR_LAKE_L: u32 = 0xaa;
const ARROW_LAKE: u32 = 0xc6;
const SAPPHIRE_RAPIDS: u32 = 0x8f;
const EMERALD_RAPIDS: u32 = 0xcf;
const GRANITE_RAPIDS: u32 = 0xad;

impl Snapshot {
    /// Returns whether a place's preference, which its file shows as `shown`, is this number. The
    /// kernel prints a word if the register holds the kernel's number for it. That number depends
    /// on the driver, and on Intel also on the model and on the firmware's setting
    /// (intel_epp_default[] and intel_pstate_update_epp_defaults() in intel_pstate.c).
    pub(super) fn preference_is(&self, place: &Place, number: Epp, shown: &str) -> Result<bool, ReadError> {
        if let Ok(shown) = shown.parse::<u8>() {
            return Ok(shown == number.0);
        }
        let topology = self.topology();
        let request = match topology.vendor {
            Vendor::Intel => Some(Id::HwpRequest),
            Vendor::Amd => Some(Id::CppcRequest),
            Vendor::Other => None,
        };
        // Both drivers have a policy per CPU, so the register of the policy's online CPU is the
        // right one.
        if let (Some(register), Some(cpu)) = (request, place.cpus.intersection(&topology.online).first()) {
            let place = Place::new(At::Cpu(cpu), CpuList::from_iter([cpu]));
            if let Some(Value::Fields(fields)) = self.value_if_readable(register, &place)?
                && let Some((_, preference)) = fields.iter().find(|(name, _)| name == "epp")
            {
                return Ok(*preference == u64::from(number.0));
            }
        }
        let numbers: &[u8] = match topology.vendor {
            Vendor::Amd => self.numbers_of_amd(place, shown),
            Vendor::Intel | Vendor::Other => numbers_of_intel(topology.model, shown),
        };
        Ok(numbers.contains(&number.0))
    }

    /// Returns the numbers of amd-pstate (`epp_values`), which since Linux 7.4 differ by model and
    /// core type.
    fn numbers_of_amd(&self, place: &Place, word: &str) -> &'static [u8] {
        match (word, self.topology().words_by_kind, self.is_performance_core(place)) {
            ("performance" | "default", false, _) => &[0],
            ("balance_performance", false, _) => &[128],
            ("balance_power", false, _) => &[191],
            ("power", false, _) => &[255],
            ("performance", true, _) => &[25],
            ("balance_performance", true, _) => &[51],
            ("balance_power", true, _) | ("power", true, true) => &[64],
            ("power", true, false) => &[115],
            _ => &[],
        }
    }

    /// Returns the word that amd-pstate shows after `word` was written. On performance cores of Zen
    /// 6, `power` has the number of `balance_power`, which is found first.
    pub(super) fn shown_as(&self, place: &Place, word: &str) -> Option<&'static str> {
        let is_alias = self.topology().words_by_kind && word == "power" && self.is_performance_core(place);
        is_alias.then_some("balance_power")
    }

    fn is_performance_core(&self, place: &Place) -> bool {
        let kinds = &self.topology().cpus;
        // If all cores are equal, they have no type.
        place.cpus.iter().all(|cpu| {
            kinds.get(&cpu).is_some_and(|cpu| cpu.core_type.is_none_or(|kind| kind == CoreType::P))
        })
    }
}

fn numbers_of_intel(model: Option<u32>, word: &str) -> &'static [u8] {
    match (word, model) {
        ("performance", Some(METEOR_LAKE_L | ARROW_LAKE)) => &[16],
        // 0 also counts on a model whose performance is 16.
        ("performance" | "default", _) => &[0],
        ("balance_performance", Some(METEOR_LAKE_L | ARROW_LAKE)) => &[64],
        ("balance_performance", Some(ALDER_LAKE_L)) => &[102],
        // The number depends on the kernel: the models' overrides were added one by one.
        ("balance_performance", Some(SAPPHIRE_RAPIDS | EMERALD_RAPIDS | GRANITE_RAPIDS)) => &[32, 128],
        ("balance_performance", _) => &[128],
        ("balance_power", Some(METEOR_LAKE_L | ARROW_LAKE)) => &[179],
        // The processor is unknown.
        ("balance_power", None) => &[191, 192],
        ("balance_power", Some(_)) => &[192],
        ("power", _) => &[255],
        _ => &[],
    }
}
