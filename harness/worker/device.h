// Device: the clock, the memory and the caches of the device that a case runs on. cpu/device.cpp implements it for the CPU. The
// implementation for GPUs, cuda/device.cpp, is in libattnbench-gpu.so, which is loaded when a case asks for a GPU, so that cases
// on the CPU never load CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "harness/schema/record.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {

// Something that is in effect as long as the object exists.
class Scope {
 public:
  Scope() = default;
  virtual ~Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

// Counts the memory of the tensors that are allocated as long as it exists. At most one may exist at a time.
class MemoryMeter : public Scope {
 public:
  virtual int64_t current_bytes() const = 0;  // in use now, of what was allocated since the meter was made
  virtual int64_t peak_bytes() const = 0;     // the maximum of that
  virtual void reset_peak() = 0;              // sets the peak to what is in use now
  // Sets the columns that only this kind of device can fill: largest_allocation_bytes or peak_reserved_bytes.
  virtual void set_columns(Record& record) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual c10::Device torch_device() const = 0;
  // The bytes of memory that a case may use if it sets no limit.
  virtual int64_t available_bytes() const = 0;
  // The reason why the case cannot run on this device; empty if it can.
  virtual std::string why_unsupported(const Case& c) const = 0;

  // Whether the device has a clock other than the host's.
  virtual bool has_own_clock() const = 0;
  // Runs `work` and returns how long it took, with the time that the host takes to launch it. Waits until the device is idle
  // before it starts and before it returns.
  virtual Elapsed time(const std::function<void()>& work) = 0;
  // Returns the stopwatch for samples of work that is repeated and has run before. It leaves out the time of launching where it
  // can (harness/worker/timing/queued_timing.h). While the device works, it reads the device's clocks, temperature and power,
  // which is_throttled() and set_columns() summarise.
  virtual Stopwatch make_sample_stopwatch() = 0;
  // Returns a function that evicts everything from the last-level cache, and leaves nothing in it that has to be written back.
  virtual std::function<void()> make_cache_flush() = 0;
  // Records what `work` launches on the device, without running it, and returns a function that runs it. What `work` initialises
  // in its first call must have been initialised by an earlier call.
  virtual std::function<void()> capture(const std::function<void()>& work) = 0;

  virtual std::unique_ptr<MemoryMeter> make_meter() = 0;
  // As long as the scope exists, an allocation that would take more than `extra_bytes` above the memory in use now fails with an
  // error that names the requested bytes.
  virtual std::unique_ptr<Scope> bound_memory(int64_t extra_bytes) = 0;
  // As long as the scope exists, memory is cached between calls as the case's axis `allocation` says: together with what is in
  // use beside the `input_bytes` of the inputs, up to the case's memory budget. May be null.
  virtual std::unique_ptr<Scope> cache_memory(const Case& c, int64_t input_bytes) = 0;

  // As long as the scope exists, profilers show a range of this name. Null if the device has no such ranges.
  virtual std::unique_ptr<Scope> range(const char* name) = 0;
  // Whether the device's clock was held down at the last reading of a sample stopwatch.
  virtual bool is_throttled() const { return false; }
  // Sets the columns of the device's name, versions and readings.
  virtual void set_columns(Record& record) const = 0;
};

struct FoundDevice {
  Device* device = nullptr;  // lives as long as the process; null if there is no such device
  std::string why_none;      // the reason if `device` is null
};

// Finds the device "cpu" or "cuda"; throws c10::ValueError for other names. The environment variable ATTNBENCH_GPU_MODULE may
// name another GPU module than libattnbench-gpu.so beside the program. Tests use it to load a fake GPU, which records then name
// in the column `gpu`.
FoundDevice find_device(const std::string& name);

// Measures the ceilings of the GPU. Returns GpuCeilings as JSON, or {"unavailable": reason} if there is no GPU.
Json gpu_ceilings();

// Sets the columns of the memory of a call, whose peak was `extra_bytes` above the `input_bytes` of its inputs.
void set_memory_columns(Record& record, const MemoryMeter& meter, int64_t input_bytes, int64_t extra_bytes, int64_t batch);

}  // namespace attnbench
