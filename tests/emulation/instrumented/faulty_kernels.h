// Small kernels with and without faults, for tests of the race detector and of the counts of accesses.
#pragma once

#include <vector>

namespace attn::emulation {

// Kernels of 64 threads and 1 KiB of shared memory, whose names say what they do.
void reads_after_a_barrier();
void reads_without_a_barrier();
void writes_after_reads_without_a_barrier();
void lanes_read_after_syncwarp();
void lanes_read_after_a_shuffle();
void warps_read_after_syncwarp();
void blocks_write_the_same_element();
void blocks_add_atomically();
void blocks_read_what_others_add_atomically();
void reads_a_copy_after_waiting();
void reads_a_copy_before_waiting();
void loads_a_misaligned_vector();

// Each thread writes 4 bytes of global memory; thread 5 only waits for the kernel before if `waits`.
void writes_early(bool waits, bool begins_early);

// Each thread reads and writes shared memory once, its 4 bytes `stride` elements after those of the thread before.
void reads_with_stride(int stride);
// Each of 2 blocks of 64 threads reads 4 bytes a thread of the same 256 bytes, twice, and writes 2 bytes a thread of its own.
void reads_and_writes_global_memory();

}  // namespace attn::emulation
