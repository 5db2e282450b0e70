// The CPU as the device of a case.
#pragma once

#include "harness/worker/device.h"

namespace attnbench {

Device& cpu_device();

}  // namespace attnbench
