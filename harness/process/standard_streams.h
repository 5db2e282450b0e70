// Makes sure that the descriptors 0, 1 and 2 are open.
#pragma once

namespace attnbench {

// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed. Otherwise the next file that the program opens, such as
// records.jsonl, would get that number, and everything printed would be written to the file. Writing to such a descriptor fails,
// as it would without it. Call it before anything else opens a file.
void reserve_standard_descriptors();

}  // namespace attnbench
