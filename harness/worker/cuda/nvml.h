// What the driver tells of a GPU while it works, by NVML. The library (libnvidia-ml.so.1) comes with the driver and is loaded at
// run time; where it is missing, or does not know an answer, nothing is said.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

class Nvml {
 public:
  // The GPU with this PCI address, "00000000:3B:00.0".
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Takes a look, if the last one is `kPauseS` or longer ago: a look takes up to milliseconds.
  void watch();
  // gpu_driver, and what the looks saw.
  void set_columns(Record& record) const;

  static constexpr double kPauseS = 0.05;

 private:
  struct Functions;
  struct Looks {
    std::vector<double> clock_mhz, memory_clock_mhz, temperature_c, power_w;
    unsigned long long throttle_reasons = 0;
    bool throttle_known = false;
  };
  void look();

  Functions* functions_ = nullptr;  // null without NVML
  void* gpu_ = nullptr;
  std::string driver_;
  Looks looks_;
  double last_look_s_ = -1e9;
};

// "none", or the names of the bits as NVML's documentation has them: "sw_power_cap hw_thermal_slowdown".
std::string throttle_text(unsigned long long reasons);

}  // namespace attnbench
