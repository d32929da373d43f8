package main

import (
	"math/rand"
	"os"
	"time"

	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	rand.Seed(time.Now().UnixNano())
	command := cmd.NewDefaultKubectlCommand()
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
