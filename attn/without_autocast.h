// WithoutAutocast: lets operators that are composed of ATen operations compute in the dtypes of their tensors.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace attn {

// While it lives, torch.autocast does not change the dtypes of the operations of this thread. The kernels compute in the dtype
// that they get, so what replaces a kernel has to do so, too.
class WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

}  // namespace attn
