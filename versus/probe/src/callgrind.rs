//! Client requests: how a program talks to the valgrind that it runs in.
//!
//! A request is a sequence of instructions that does nothing, and that valgrind recognises; see `valgrind.h`. Valgrind
//! has it for other processors as well, in other sequences, which are not here.

/// Whether collecting is on belongs to a thread, in callgrind. So what this thread does counts from here on, or no
/// more, whatever other threads do (`--collect-atstart=no`). Nothing outside of callgrind.
pub(crate) fn toggle_collect() {
    const TOGGLE_COLLECT: u64 = 0x4354_0002; // 'C', 'T', 2
    request(TOGGLE_COLLECT);
}

/// Whether this program runs in valgrind.
pub(crate) fn is_around() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    request(RUNNING_ON_VALGRIND) != 0
}

/// Makes a request without arguments. 0 outside of valgrind, and on processors that this does not know.
fn request(request: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let arguments = [request, 0, 0, 0, 0, 0];
        let mut answer = 0_u64;
        // SAFETY: the rotations add up to 128 bits and leave `rdi` as it was, and the exchange is of a register with
        // itself; so nothing changes but the flags, which `asm!` takes for changed. Valgrind reads `arguments`, which
        // live for the call, and writes `rdx`.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") arguments.as_ptr(),
                inout("rdx") answer,
                options(nostack),
            );
        }
        answer
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = request;
        0
    }
}
