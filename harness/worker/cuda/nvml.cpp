// Loads NVML at run time, and takes readings of the GPU with a pause between them.
#include "harness/worker/cuda/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "harness/statistics/statistics.h"

namespace attnbench {
namespace {

// Constants of NVML's documented interface, whose functions return 0 for success.
constexpr unsigned kClockSm = 1, kClockMemory = 2;
constexpr unsigned kTemperatureGpu = 0;

constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
};
// This reason is not recorded, because a GPU that is idle between samples is not throttled.
constexpr unsigned long long kIdle = 0x1;

// The reasons for which a clock is held down against the user's wish.
constexpr unsigned long long kHeldDown = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

struct Nvml::Functions {
  int (*init)();
  int (*shutdown)();
  int (*driver_version)(char*, unsigned);
  int (*handle_by_pci)(const char*, void**);
  int (*clock)(void*, unsigned, unsigned*);
  int (*temperature)(void*, unsigned, unsigned*);
  int (*power)(void*, unsigned*);
  int (*reasons)(void*, unsigned long long*);

  // Null when the library or one of its functions is missing.
  static Functions* load() {
    auto* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    static Functions functions;
    bool complete = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      complete = complete && function;
    };
    find(functions.init, "nvmlInit_v2");
    find(functions.shutdown, "nvmlShutdown");
    find(functions.driver_version, "nvmlSystemGetDriverVersion");
    find(functions.handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    find(functions.clock, "nvmlDeviceGetClockInfo");
    find(functions.temperature, "nvmlDeviceGetTemperature");
    find(functions.power, "nvmlDeviceGetPowerUsage");
    // The name that the function has had since drivers of CUDA 12.2, and the one before.
    const bool renamed = dlsym(library, "nvmlDeviceGetCurrentClocksEventReasons") != nullptr;
    find(functions.reasons, renamed ? "nvmlDeviceGetCurrentClocksEventReasons" : "nvmlDeviceGetCurrentClocksThrottleReasons");
    return complete && functions.init() == 0 ? &functions : nullptr;
  }
};

Nvml::Nvml(const std::string& pci_bus_id) : functions_(Functions::load()) {
  if (!functions_) return;
  std::array<char, 128> version{};
  if (functions_->driver_version(version.data(), unsigned(version.size())) == 0) driver_ = version.data();
  if (functions_->handle_by_pci(pci_bus_id.c_str(), &gpu_) != 0) gpu_ = nullptr;
}

Nvml::~Nvml() {
  if (functions_) functions_->shutdown();
}

void Nvml::watch() {
  if (gpu_ && now_s() - last_reading_s_ >= kPauseS) take_reading();
}

void Nvml::take_reading() {
  const auto take = [](std::vector<double>& values, int error, double value) {
    if (error == 0) values.push_back(value);
  };
  unsigned value = 0;
  auto error = functions_->clock(gpu_, kClockSm, &value);
  take(readings_.clock_mhz, error, value);
  error = functions_->clock(gpu_, kClockMemory, &value);
  take(readings_.memory_clock_mhz, error, value);
  error = functions_->temperature(gpu_, kTemperatureGpu, &value);
  take(readings_.temperature_c, error, value);
  error = functions_->power(gpu_, &value);
  take(readings_.power_w, error, value / 1e3);
  unsigned long long reasons = 0;
  if (functions_->reasons(gpu_, &reasons) == 0) {
    readings_.last_reasons = reasons;
    readings_.throttle_reasons |= reasons & ~kIdle;
    readings_.throttle_known = true;
  }
  last_reading_s_ = now_s();
}

bool Nvml::is_throttled() const { return (readings_.last_reasons & kHeldDown) != 0; }

void Nvml::set_columns(Record& record) const {
  if (!driver_.empty()) record.set("gpu_driver", driver_);
  const auto max = [](const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); };
  if (const auto& mhz = readings_.clock_mhz; !mhz.empty()) {
    record.set("gpu_clock_mhz", median(mhz));
    record.set("gpu_clock_min_mhz", *std::min_element(mhz.begin(), mhz.end()));
  }
  if (!readings_.memory_clock_mhz.empty()) record.set("gpu_memory_clock_mhz", median(readings_.memory_clock_mhz));
  if (!readings_.temperature_c.empty()) record.set("gpu_temperature_c", max(readings_.temperature_c));
  if (!readings_.power_w.empty()) record.set("gpu_power_w", max(readings_.power_w));
  if (readings_.throttle_known) record.set("gpu_throttle_reasons", throttle_text(readings_.throttle_reasons));
}

std::string throttle_text(unsigned long long reasons) {
  std::string text;
  const auto add = [&](const char* name) {
    if (!text.empty()) text += ' ';
    text += name;
  };
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) == 0) continue;
    add(name);
    reasons &= ~bit;
  }
  if (reasons != 0) add("other");
  return text.empty() ? "none" : text;
}

}  // namespace attnbench
