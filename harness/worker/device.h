// The device that a case runs on, as measuring needs it: its clock, its memory, its caches. cpu/device.cpp implements it for the
// CPU. The GPU's implementation, cuda/device.cpp, is in libattnbench-gpu.so, which is loaded when a case asks for a GPU, so that
// cases on the CPU never load CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "harness/schema/record.h"
#include "harness/worker/timing.h"

namespace attnbench {

// Something that is in effect as long as the object lives.
class Scope {
 public:
  Scope() = default;
  virtual ~Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

// Counts the memory of tensors that are allocated while it lives. At most one lives at a time.
class MemoryMeter : public Scope {
 public:
  virtual int64_t current_bytes() const = 0;  // in use now, of what was allocated since the meter was made
  virtual int64_t peak_bytes() const = 0;     // the maximum of that
  virtual void forget_peak() = 0;             // sets the peak to what is in use now
  // Sets the columns that only this kind of device can fill: largest_allocation_bytes or peak_reserved_bytes.
  virtual void set_columns(Record& record) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual c10::Device torch_device() const = 0;
  // Memory that a case may take if it sets no limit.
  virtual int64_t available_bytes() const = 0;
  // Why this case cannot run here, or empty.
  virtual std::string why_unsupported(const Case& c) const = 0;

  // Whether the device has a clock of its own beside the host's.
  virtual bool has_own_clock() const = 0;
  // How long `work` takes. The device is idle before and after.
  virtual Elapsed time(const std::function<void()>& work) = 0;
  // A call of the result evicts everything from the last-level cache.
  virtual std::function<void()> make_cache_flush() = 0;
  // Records what `work` launches on the device, without running it; a call of the result runs it. Whatever `work` initialises at
  // its first call must have been initialised by a call before.
  virtual std::function<void()> capture(const std::function<void()>& work) = 0;

  virtual std::unique_ptr<MemoryMeter> make_meter() = 0;
  // While the scope lives, an allocation fails that would take more than `extra_bytes` above the memory in use now, with an error
  // that names the bytes asked for.
  virtual std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) = 0;
  // While the scope lives, memory is cached between calls as the case's axis `allocation` says.
  virtual std::unique_ptr<Scope> cache_memory(const Case& c) = 0;

  // While the scope lives, profilers show a range of this name.
  virtual std::unique_ptr<Scope> range(const char* name) = 0;
  // To be called between samples: reads clocks, temperature and power now and then, which set_columns() sums up.
  virtual void watch() = 0;
  // Sets the columns that name the device and tell of its clocks.
  virtual void set_columns(Record& record) const = 0;
};

struct FoundDevice {
  Device* device = nullptr;  // lives as long as the process
  std::string why_none;      // why there is no device
};

// The device "cpu" or "cuda"; throws c10::ValueError for other names. The GPU module is ATTNBENCH_GPU_MODULE where that is set
// (tests put another module in its place, which records then name in the column `gpu`), otherwise libattnbench-gpu.so beside the
// program.
FoundDevice find_device(const std::string& name);

// Whether find_device() has returned a GPU.
bool gpu_in_use();

// The GPU's measured ceilings, or {"unavailable": why}.
Json gpu_ceilings();

// Sets the columns of the memory of a call, which took `extra_bytes` above the `input_bytes` of what it was made on.
void set_memory_columns(Record& record, const MemoryMeter& meter, int64_t input_bytes, int64_t extra_bytes, int64_t batch);

}  // namespace attnbench
