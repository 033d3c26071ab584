//! Finds the files of knobs, for readers that keep the files open.

use flyball_host::Host;

use super::{Snapshot, expand::Pattern};
use crate::{At, Form, Id, Knob, Mechanism, Place, Topology};

/// The file that holds a knob at one place.
#[derive(Debug, Clone)]
pub struct KnobFile {
    pub place: Place,
    pub path: String,
    pub form: Form,
}

impl Snapshot {
    /// Finds the files of `knob` at all of its places without reading them. If the table has
    /// several files for the knob, uses the first that the machine has. Empty if the machine lacks
    /// the knob or has it only in registers.
    pub fn files(&mut self, host: &dyn Host, knob: Id) -> Vec<KnobFile> {
        let row = knob.knob();
        if row.vendor.is_some_and(|vendor| vendor != self.topology.vendor) {
            return Vec::new();
        }
        self.find_places(host, row.scope);
        let places = self.places_in(row.scope);
        let online = &self.topology.online;
        for mechanism in row.mechanisms {
            let Mechanism::File { path, form, .. } = *mechanism else { continue };
            let pattern = Pattern::new(path);
            let files: Vec<KnobFile> = places
                .iter()
                .filter_map(|place| {
                    let path = pattern.path(&self.topology, &place.at)?;
                    Some(KnobFile { place: place.clone(), path, form })
                })
                .collect();
            // Either all places with online CPUs have the file or none has.
            let mut looked =
                files.iter().filter(|file| file.place.cpus.iter().any(|cpu| online.contains(cpu)));
            let exists = |file: Option<&KnobFile>| file.is_some_and(|file| host.exists(&file.path));
            if exists(looked.next()) || exists(looked.next_back()) {
                return files;
            }
        }
        Vec::new()
    }
}

impl Knob {
    /// Returns the path of the knob's first file at a place, whether it exists or not.
    pub fn path(&self, topology: &Topology, at: &At) -> Option<String> {
        self.mechanisms.iter().find_map(|mechanism| match mechanism {
            Mechanism::File { path, .. } => Pattern::new(path).path(topology, at),
            _ => None,
        })
    }
}
