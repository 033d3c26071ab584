//! Control groups that get and lose processes: inotify(7) on cgroup.events
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
    /// Watched paths, each with its watch number and inode number, since a group that is created
    /// again is a different group.
    watched: BTreeMap<PathBuf, (i32, u64)>,
}

impl Groups {
    pub(super) fn new() -> io::Result<Groups> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Groups { inotify, watched: BTreeMap::new() })
    }

    /// Watches the files that now show changes of these groups. Returns whether any of them is new.
    pub(super) fn follow(&mut self, groups: &BTreeSet<PathBuf>) -> io::Result<bool> {
        let mut wanted: BTreeMap<PathBuf, WatchFlags> = BTreeMap::new();
        for group in groups {
            let events = group.join("cgroup.events");
            let text = std::fs::read_to_string(&events);
            // kernfs_notify reports a change of the file to its watchers, but its removal to
            // nobody. A group without processes may be removed and created again, so its parent
            // directory is watched too. While the group has processes, the parent is not watched,
            // because every other service that starts would be reported.
            if !text.as_ref().is_ok_and(|text| text.contains("populated 1")) {
                let above = group.ancestors().skip(1).find(|above| above.is_dir());
                wanted.extend(above.map(|above| (above.to_owned(), WatchFlags::CREATE)));
            }
            if text.is_ok() {
                wanted.insert(events, WatchFlags::MODIFY);
            } else if group.is_dir() {
                // The group exists, but its files are still being created.
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
                // If the file is gone, the kernel has already removed the watch.
                let _ = remove_watch(&self.inotify, *number);
            }
            stays
        });
        let mut is_more = false;
        for (path, flags) in wanted {
            if !self.watched.contains_key(&path) {
                match add_watch(&self.inotify, &path, flags) {
                    Ok(number) => _ = self.watched.insert(path.clone(), (number, inode(&path))),
                    // The group was removed in between. The next event of its parent shows that.
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
                // It does not matter which group it is: all are read again, and they are few. So a
                // full queue loses nothing either. Ignore paths that are no longer watched.
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
