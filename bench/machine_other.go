//go:build !linux

package main

import (
	"errors"
	"os/exec"
	"time"
)

// Pinning to cores and reading the clocks of other processes are implemented
// only for Linux. Without them the comparison is meaningless.
var errLinux = errors.New("this benchmark needs Linux: it pins processes to cores and reads their processor clocks")

type cores []int

func allowedCores() (cores, error)       { return nil, errLinux }
func startPinned(*exec.Cmd, cores) error { return errLinux }
func cpuTime(int) (time.Duration, error) { return 0, errLinux }
func resident(int) (int64, error)        { return 0, errLinux }
func mapped(int) (int64, error)          { return 0, errLinux }
func sleepUntil(t time.Time)             { time.Sleep(time.Until(t)) }
func takeThread()                        {}
func busyTime() (time.Duration, error)   { return 0, errLinux }
func ownTime() (time.Duration, error)    { return 0, errLinux }
func machine() string                    { return "" }
func loadAverage() string                { return "" }
