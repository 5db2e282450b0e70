// Reads the clocks, temperature, power and throttle reasons of a GPU while it works, through NVML. That library
// (libnvidia-ml.so.1) comes with the GPU's driver and is loaded at run time. The columns stay empty if it is missing or does not
// report a value.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

class Nvml {
 public:
  // For the GPU with this PCI address, such as "00000000:3B:00.0".
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Must be called while the GPU works. Takes a reading if the last one was at least kPauseS seconds ago; a reading can take
  // milliseconds.
  void watch();
  // Whether the clock was held down at the last reading, by power, temperature or the hardware. A clock that was set is not held
  // down.
  bool is_throttled() const;
  // Sets gpu_driver and the columns that summarise the readings.
  void set_columns(Record& record) const;

  static constexpr double kPauseS = 0.05;

 private:
  struct Functions;
  struct Readings {
    std::vector<double> clock_mhz, memory_clock_mhz, temperature_c, power_w;
    unsigned long long throttle_reasons = 0;  // of all readings
    unsigned long long last_reasons = 0;      // of the last reading
    bool throttle_known = false;
  };
  void take_reading();

  Functions* functions_ = nullptr;  // null if NVML cannot be loaded
  void* gpu_ = nullptr;             // NVML's handle; null if it does not know the GPU
  std::string driver_;
  Readings readings_;
  double last_reading_s_ = -1e9;
};

// The names of the bits that are set, as in NVML's documentation, such as "sw_power_cap hw_thermal_slowdown"; "none" for 0.
std::string throttle_text(unsigned long long reasons);

}  // namespace attnbench
