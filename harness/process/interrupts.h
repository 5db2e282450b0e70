// SIGINT and SIGTERM as an exception: whoever waits for a child process asks whether one of them has arrived.
#pragma once

namespace attnbench {

// From here on SIGINT and SIGTERM no longer end this program, but make throw_if_interrupted() throw. Writing to a pipe that
// nobody reads becomes an error instead of SIGPIPE.
void catch_interrupts();

// Throws Interrupted if SIGINT or SIGTERM has arrived since catch_interrupts().
void throw_if_interrupted();

}  // namespace attnbench
