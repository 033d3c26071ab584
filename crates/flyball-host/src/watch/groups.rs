//! Control groups that get processes and lose them: inotify(7) on cgroup.events
//! (Documentation/admin-guide/cgroup-v2.rst), and on the directory in which a group will be
//! created.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};

use super::Event;

#[derive(Debug)]
pub(super) struct Groups {
    inotify: OwnedFd,
    /// Watched paths, each with its watch number and inode number: a group that is created again is
    /// a different one.
    watched: BTreeMap<PathBuf, (i32, u64)>,
}

impl Groups {
    pub(super) fn new() -> io::Result<Groups> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Groups { inotify, watched: BTreeMap::new() })
    }

    /// Watches the files that show a change of these groups now. Returns whether that is more than
    /// before.
    pub(super) fn follow(&mut self, groups: &BTreeSet<PathBuf>) -> io::Result<bool> {
        let mut wanted: BTreeMap<PathBuf, WatchFlags> = BTreeMap::new();
        for group in groups {
            let events = group.join("cgroup.events");
            let text = std::fs::read_to_string(&events);
            // kernfs_notify reports a change of the file to its watchers, but its removal to no
            // one. A group without processes may be removed and created again, so the directory
            // above is watched too, but not while the group has processes: every other service that
            // starts would be reported.
            if !text.as_ref().is_ok_and(|text| text.contains("populated 1")) {
                let above = group.ancestors().skip(1).find(|above| above.is_dir());
                wanted.extend(above.map(|above| (above.to_owned(), WatchFlags::CREATE)));
            }
            if text.is_ok() {
                wanted.insert(events, WatchFlags::MODIFY);
            } else if group.is_dir() {
                // A group whose files are being created.
                wanted.insert(group.clone(), WatchFlags::CREATE);
            }
        }
        let inode = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(path).map_or(0, |data| data.ino())
        };
        self.watched.retain(|path, (number, of)| {
            let stays = wanted.contains_key(path) && inode(path) == *of;
            if !stays {
                // The kernel has removed it by itself if the file is gone.
                let _ = remove_watch(&self.inotify, *number);
            }
            stays
        });
        let mut is_more = false;
        for (path, flags) in wanted {
            if !self.watched.contains_key(&path) {
                match add_watch(&self.inotify, &path, flags) {
                    Ok(number) => _ = self.watched.insert(path.clone(), (number, inode(&path))),
                    // It went in between: the next report of the directory above shows it.
                    Err(rustix::io::Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
                is_more = true;
            }
        }
        Ok(is_more)
    }

    pub(super) fn take(&self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                // It does not matter which one it is: all are read again, and they are few. A full
                // queue loses nothing either. Paths that are no longer watched are ignored.
                Ok(event)
                    if event.events().contains(ReadFlags::IGNORED) || events.contains(&Event::Group) => {}
                Ok(_) => events.push(Event::Group),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Groups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
