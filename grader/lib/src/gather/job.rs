//! A job of Windows: processes that end together.
//!
//! What a process of a job starts belongs to it, too, and a job ends with the last handle to it. The only one is
//! ours, so an attempt and all that it started end when the grader does, however that ends.
//!
//! Memory is counted, not limited by the job: its limits are over committed bytes, and a GPU's driver commits what no
//! program ever touches. Source: "Job Objects", Microsoft Learn, Win32 API.

#![allow(unsafe_code)] // the system's own functions: each answers into memory whose size it is told

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_PROCESS_ID_LIST, JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicProcessIdList,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SET_QUOTA, PROCESS_TERMINATE,
};

use super::held::{Held, MOST_PROCESSES};

/// Processes that a job can list: more than an attempt may have, and its last is not the last that is counted.
const LISTED: usize = 4 * MOST_PROCESSES;

/// The list of a job's processes, as Windows fills it in.
#[repr(C)]
struct Listed {
    head: JOBOBJECT_BASIC_PROCESS_ID_LIST, // with room for the first
    rest: [usize; LISTED - 1],
}

/// The handle to a job; its processes end with it.
pub(super) struct Job(OwnedHandle);

impl Job {
    /// A job without a process.
    pub fn new() -> io::Result<Self> {
        // SAFETY: neither attributes nor a name are given.
        let job = owned(unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) })?;
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = size_of_val(&limits) as u32;
        // SAFETY: the class is that of the structure, whose size is given.
        let done = unsafe {
            let limits = (&raw const limits).cast();
            SetInformationJobObject(job.as_raw_handle(), JobObjectExtendedLimitInformation, limits, size)
        };
        succeeded(done)?;
        Ok(Self(job))
    }

    /// Takes a process in, with all that it starts from now on.
    pub fn add(&self, id: u32) -> io::Result<()> {
        let process = open(id, PROCESS_SET_QUOTA | PROCESS_TERMINATE)?;
        // SAFETY: both handles are open.
        succeeded(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process.as_raw_handle()) })
    }

    /// Its processes that run, and what they hold.
    pub fn held(&self) -> Held {
        let ids = self.ids();
        Held { processes: ids.len(), bytes: ids.into_iter().filter_map(resident).sum() }
    }

    fn ids(&self) -> Vec<u32> {
        let mut listed = Listed { head: JOBOBJECT_BASIC_PROCESS_ID_LIST::default(), rest: [0; LISTED - 1] };
        let size = size_of_val(&listed) as u32;
        // Where there are more than fit, the call fails and lists as many as fit.
        // SAFETY: the class is that of the structure, whose size with its list is given.
        unsafe {
            let (job, listed) = (self.0.as_raw_handle(), (&raw mut listed).cast());
            QueryInformationJobObject(job, JobObjectBasicProcessIdList, listed, size, std::ptr::null_mut());
        }
        let all = listed.head.ProcessIdList.iter().chain(&listed.rest);
        let there = all.take(listed.head.NumberOfProcessIdsInList as usize);
        there.map(|id| *id as u32).collect()
    }
}

/// Bytes of a process that lie in main memory; nothing of one that is gone.
fn resident(id: u32) -> Option<usize> {
    let process = open(id, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of_val(&counters) as u32;
    // SAFETY: the handle is open, and the structure's size is given.
    let done = unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), &raw mut counters, size) };
    (done != 0).then_some(counters.WorkingSetSize)
}

fn open(id: u32, rights: u32) -> io::Result<OwnedHandle> {
    // SAFETY: the handle that it answers is closed by its owner only.
    owned(unsafe { OpenProcess(rights, 0, id) })
}

fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open and nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn succeeded(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
