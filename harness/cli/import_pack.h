// `attnbench import` of the file in which the results of a GPU travel, which `make gpu` packs on another machine.
#pragma once

#include <string>

#include "harness/process/worker_process.h"

namespace attnbench {

// Whether the file begins like data that gzip has compressed, as such packs do.
bool is_pack(const std::string& path);

// Takes the records of a pack as measured records of its machine. Those of a sweep come into the folder OUT/SWEEP or, if `out` is
// empty, results/SWEEP/GPU. tools/gpu_pack.py checks the pack before anything is taken from it. Throws UsageError that names what
// is wrong if the pack is damaged or holds anything but plain files, if records are not of the revision and the GPU that it
// names, or if one of the folders has records already; nothing is written then. Returns text that says what was imported, and
// which steps had failed on that machine.
std::string import_pack(const std::string& path, const std::string& out, const WorkerProgram& worker);

}  // namespace attnbench
