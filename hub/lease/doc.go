// Package lease decides which of several processes works for a driver.
package lease
