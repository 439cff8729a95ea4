//! Loading of the program's code into memory before regions execute it.
//!
//! The kernel reads a page of code from its file when the page is first executed, by a page fault. In a region
//! a fault is an abort: the processor drops the fault with the rest, and the kernel never hears of it. For a
//! page of data that does no lasting harm: the software twin touches the page too, faults, and the next region
//! finds it mapped. But the twin is other code. If one instruction of a region lies in a page that only regions
//! execute, the region would abort every time for as long as the process lives. The only sign would be a high
//! count of system events. (On the first processor with RTM that ran Weft, this happened to every look-up of a
//! benchmark: see docs/rtm.md.) The same holds for constants, which the compiler places beside the code.
//!
//! So opening a backend with hardware touches all code and all constants of the program and of its libraries.
//! That is some hundred page faults if they are in the page cache, and otherwise a read of the files. The
//! kernel may later take pages away that it needs elsewhere. So a worker that has fallen back often touches
//! them all again (`Regions::may_retry`).
use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{_SC_PAGESIZE, PF_R, PF_W, PT_LOAD, dl_iterate_phdr, dl_phdr_info, sysconf};

/// Maps every page of code and constants that is loaded now.
pub(crate) fn map_all() {
    if cfg!(weft_sanitize) {
        return; // AddressSanitizer forbids reads between two constants.
    }
    // SAFETY: the callback has the type that the function asks for, and uses no data, so a null pointer is
    // fine.
    unsafe { dl_iterate_phdr(Some(map_object), ptr::null_mut()) };
}

/// Maps the code and the constants of the program, or of one of its libraries.
unsafe extern "C" fn map_object(object: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the caller, `dl_iterate_phdr`, passes a description that is valid for this call, and keeps the
    // object loaded during it.
    let (base, headers) = unsafe {
        let object = &*object;
        let count = usize::from(object.dlpi_phnum);
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, count))
    };
    // SAFETY: `sysconf` only returns a constant of the system.
    let page_bytes = unsafe { sysconf(_SC_PAGESIZE) } as usize;
    let is_read_only = |flags: u32| flags & PF_R != 0 && flags & PF_W == 0;
    for header in
        headers.iter().filter(|header| header.p_type == PT_LOAD && is_read_only(header.p_flags))
    {
        let start = base + header.p_vaddr as usize;
        // Touch the first byte, and then the first byte of every further page.
        let further = (start + 1).next_multiple_of(page_bytes);
        let end = start + header.p_filesz as usize;
        for address in std::iter::once(start).chain((further..end).step_by(page_bytes)) {
            // SAFETY: the byte is part of a loaded segment that may be read, and no thread writes to it.
            unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() };
        }
    }
    0
}

#[cfg(all(test, target_arch = "x86_64", not(any(loom, shuttle))))]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Choice, Htm, Regions, RetryPolicy};

    /// A page of code with one function, which only these tests execute.
    mod lonely {
        std::arch::global_asm!(
            ".pushsection .text.weft_lonely_code, \"ax\", @progbits",
            ".p2align 12",
            ".globl weft_lonely_code",
            "weft_lonely_code:",
            "mov eax, 42",
            "ret",
            ".p2align 12",
            ".popsection",
        );

        unsafe extern "C" {
            pub safe fn weft_lonely_code() -> u32;
        }
    }

    const PAGE_BYTES: usize = 4096;

    fn lonely_page() -> usize {
        lonely::weft_lonely_code as *const () as usize
    }

    /// Takes the page out of this process's memory. It stays in its file and in the page cache.
    fn drop_lonely_page() {
        let page = ptr::with_exposed_provenance_mut(lonely_page());
        // SAFETY: the page is unmodified code of a file, and comes back from there when needed.
        let done = unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_DONTNEED) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Returns whether the page is mapped, so that the processor finds it without the kernel's help.
    fn is_mapped() -> bool {
        const PRESENT: u64 = 1 << 63;
        let mut entry = [0; 8];
        let pages = File::open("/proc/self/pagemap").expect("the kernel shows a process its pages");
        let position = lonely_page() / PAGE_BYTES * entry.len();
        pages.read_exact_at(&mut entry, position as u64).expect("the page has an entry");
        u64::from_ne_bytes(entry) & PRESENT != 0
    }

    /// Protects the mapping of code pages, on any processor. It is one test for all three cases, because they
    /// take away the same page. It tries several times, because the kernel may map a page together with its
    /// neighbours.
    #[test]
    fn opening_maps_the_code_of_regions() {
        let was_dropped = (0..100).any(|_| {
            drop_lonely_page();
            !is_mapped()
        });
        assert!(was_dropped, "the page cannot be taken away: this test sees nothing");
        map_all();
        assert!(is_mapped());

        // The purpose, visible on a processor with RTM: regions that execute the page abort again and again
        // until it is mapped.
        let policy = RetryPolicy { system_event: 50, ..RetryPolicy::default() };
        let Ok(htm) = Htm::open(Choice::Rtm, policy) else { return };
        let regions = Regions::new(&htm);
        let run = || regions.run(|_| lonely::weft_lonely_code(), || false);
        let give_up = || {
            let gave_up = (0..100).any(|_| {
                drop_lonely_page();
                run().is_none()
            });
            assert!(gave_up, "a region brought the page in: {:?}", regions.statistics());
        };
        give_up();
        let _again = Htm::open(Choice::Rtm, policy).expect("as before");
        assert_eq!(run(), Some(42), "{:?}", regions.statistics());

        // The page is also mapped again if no backend is opened: the fallbacks do it.
        give_up();
        let committed = (0..10_000).any(|_| run() == Some(42));
        assert!(committed, "{:?}", regions.statistics());
    }
}
