// What measuring needs of the device that a case runs on: its clock, its memory, its caches. The CPU's is in device.cpp; the
// GPU's comes from libattnbench-gpu.so (cuda/device.cpp), loaded when a case asks for it, so that CPU cases never load CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "harness/schema/record.h"
#include "harness/worker/timing.h"

namespace attnbench {

// Something that lasts as long as the object.
class Scope {
 public:
  Scope() = default;
  virtual ~Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

// Memory of tensors since it was made. At most one at a time.
class MemoryMeter : public Scope {
 public:
  virtual int64_t current_bytes() const = 0;  // alive now, of what was allocated since
  virtual int64_t peak_bytes() const = 0;     // most alive at once
  virtual void forget_peak() = 0;             // the peak becomes what is alive now
  // Sets the columns that this device alone knows: largest_allocation_bytes, peak_reserved_bytes.
  virtual void set_columns(Record& record) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual c10::Device torch_device() const = 0;
  // Memory that a case may take by default.
  virtual int64_t available_bytes() const = 0;
  // Why this case cannot run here, or nothing.
  virtual std::string why_unsupported(const Case& c) const = 0;

  // Whether it has a clock beside the host's.
  virtual bool has_own_clock() const = 0;
  // Waits until the device is idle, before and after.
  virtual Elapsed time(const std::function<void()>& work) = 0;
  // A call evicts everything from the last-level cache.
  virtual std::function<void()> make_cache_flush() = 0;
  // What `work` gives the device, recorded without being run; a call of the result has the device do it. Whatever `work` needs
  // to be made ready must have been so by an ordinary call.
  virtual std::function<void()> capture(const std::function<void()>& work) = 0;

  virtual std::unique_ptr<MemoryMeter> make_meter() = 0;
  // An allocation that would take more than this above what is taken now fails, with an error that names the bytes asked for.
  virtual std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) = 0;
  // Large blocks are kept from call to call, or not: see the axis `allocation`.
  virtual std::unique_ptr<Scope> keep_memory(const Case& c) = 0;

  // A named stretch of time, for profilers.
  virtual std::unique_ptr<Scope> range(const char* name) = 0;
  // Looks at clocks, temperature and power, now and then while samples are taken; set_columns() has what was seen.
  virtual void watch() = 0;
  // Which device, and its clocks.
  virtual void set_columns(Record& record) const = 0;
};

struct FoundDevice {
  Device* device = nullptr;  // lives as long as the process
  std::string why_none;
};

// "cpu" or "cuda". The module's path is ATTNBENCH_GPU_MODULE where that is set (tests put another in its place, which records
// then name in the column `gpu`), otherwise libattnbench-gpu.so beside the program.
FoundDevice find_device(const std::string& name);

// Whether find_device() has given out a GPU.
bool gpu_in_use();

// The GPU's measured ceilings, or {"unavailable": why}.
Json gpu_ceilings();

}  // namespace attnbench
