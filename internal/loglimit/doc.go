// Package loglimit keeps what happens again and again from flooding the log.
//
// A Problem is one condition that persists, such as a driver that cannot be reached. A Limiter bounds the rate
// of lines about many objects, and says how many lines it has suppressed.
package loglimit
