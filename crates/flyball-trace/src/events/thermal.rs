//! Events that report limits of performance by heat or power (include/trace/events/thermal.h,
//! hw_pressure.h and power.h).

use super::{
    declare::event,
    field::{Maybe, Name, Rest, Signed, Small},
};
use crate::comm::Comm;

event! {
    /// `thermal:thermal_temperature`: a zone's temperature.
    Temperature = "thermal": "thermal_temperature",
    example "thermal_zone=x86_pkg_temp id=2 temp_prev=70000 temp=71000",
    {
        /// The zone's type, cut at 16 bytes.
        zone: Comm as Name = ["thermal_zone"], "thermal_zone=";
        /// The zone's number.
        id: i32 as Signed = ["id"], " id=";
        /// The previous temperature, thousandths of a degree Celsius.
        before: Option<i32> as Maybe<Signed> = ["temp_prev"], " temp_prev=";
        /// The temperature, thousandths of a degree Celsius.
        temperature: i32 as Signed = ["temp"], " temp=";
    }
}

event! {
    /// `thermal:thermal_zone_trip`: a zone is at or above a trip point. There is one record for
    /// each update of the governor.
    Trip = "thermal": "thermal_zone_trip",
    example "thermal_zone=acpitz id=0 trip=1",
    {
        /// The zone's type, cut at 16 bytes.
        zone: Comm as Name = ["thermal_zone"], "thermal_zone=";
        /// The zone's number.
        id: i32 as Signed = ["id"], " id=";
        /// The trip point's number.
        trip: i32 as Signed = ["trip"], " trip=";
    }
}

event! {
    /// `thermal:cdev_update`: a cooling device was set to a state; 0 does not cool.
    Cooling = "thermal": "cdev_update",
    example "type=Processor target=3",
    {
        /// The device's type, cut at 16 bytes.
        device: Comm as Name = ["type"], "type=";
        /// The state.
        target: u32 as Small = ["target"], " target=";
    }
}

event! {
    /// `hw_pressure:hw_pressure_update`: capacity that a CPU lost, out of 1024 (kernels from 6.10
    /// on).
    Pressure = "hw_pressure": "hw_pressure_update",
    example "cpu=3 hw_pressure=512",
    about cpu,
    {
        /// The CPU that lost capacity.
        cpu: u32 as Small = ["cpu"], "cpu=";
        /// Lost capacity, out of 1024.
        lost: u32 as Small = ["hw_pressure"], " hw_pressure=";
    }
}

event! {
    /// `thermal_pressure:thermal_pressure_update`: [`Pressure`] before kernel 6.10.
    ThermalPressure = "thermal_pressure": "thermal_pressure_update",
    example "cpu=3 thermal_pressure=512",
    about cpu,
    {
        /// The CPU that lost capacity.
        cpu: u32 as Small = ["cpu"], "cpu=";
        /// Lost capacity, out of 1024.
        lost: u32 as Small = ["thermal_pressure"], " thermal_pressure=";
    }
}

event! {
    /// `power:powernv_throttle`: a chip is throttled to a P-state.
    Throttle = "power": "powernv_throttle",
    example "Chip 0 Pmax 40 Power Cap",
    {
        /// The chip.
        chip: i32 as Signed = ["chip_id"], "Chip ";
        /// The highest allowed P-state.
        pmax: i32 as Signed = ["pmax"], " Pmax ";
        /// The reason, cut at 16 bytes.
        reason: Comm as Rest = ["reason"], " ";
    }
}
