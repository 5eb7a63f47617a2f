// tutti: TUTTI_API marks the names that the shared library exports; all others are hidden.
#pragma once

#define TUTTI_API __attribute__((visibility("default")))
