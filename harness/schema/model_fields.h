// The fields that several experiments share: each returns the declaration of a member that has the field's name.
#pragma once

#include <string_view>

#include "harness/schema/field.h"

namespace attnbench {

template <class Owner>
FieldOf<Owner> threads_field(std::string_view section) {
  return axis("threads", &Owner::threads, "number of CPU threads; by default one for every processor",
              {.min = 1, .max = 4096, .section = section});
}

template <class Owner>
FieldOf<Owner> layers_field() {
  return setting("layers", &Owner::layers, "number of layers of the model", {.min = 1, .max = 1000, .section = "model"});
}

template <class Owner>
FieldOf<Owner> heads_field() {
  return setting("heads", &Owner::heads, "number of attention heads of a layer", {.min = 1, .max = 1000, .section = "model"});
}

template <class Owner>
FieldOf<Owner> head_dim_field() {
  return setting("head_dim", &Owner::head_dim, "dimension of a head; the model is heads · head_dim wide",
                 {.min = 1, .max = 10000, .section = "model"});
}

}  // namespace attnbench
