// Events records events about one object with client-go's two recorders, again and again, so that they are patched: the
// older one counts, the newer one makes a series. It ends by itself when everything is sent.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	name := flag.String("deployment", "", "in namespace default, whom the events are about")
	times := flag.Int("times", 3, "how often each is recorded")
	flag.Parse()
	if err := run(*kubeconfig, *name, *times); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
	fmt.Println(`{"type":"DONE"}`)
}

func run(kubeconfig, name string, times int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	whole, err := client.AppsV1().Deployments("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	about, err := reference.GetReference(scheme.Scheme, whole)
	if err != nil {
		return err
	}

	counted := record.NewBroadcaster()
	counted.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	older := counted.NewRecorder(scheme.Scheme, v1.EventSource{Component: "events-test"})
	for range times {
		older.Event(about, v1.EventTypeNormal, "Counted", "by the older recorder")
	}

	series := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	stop := make(chan struct{})
	defer close(stop)
	series.StartRecordingToSink(stop)
	newer := series.NewRecorder(scheme.Scheme, "kubefold.dev/events-test")
	for range times {
		newer.Eventf(about, nil, v1.EventTypeNormal, "InSeries", "Testing", "by the newer recorder")
		// A recorder makes a series of what comes while the first one is known.
		time.Sleep(200 * time.Millisecond)
	}
	return until(client, about, times)
}

// Recorders send in the background; what they sent is to be seen.
func until(client kubernetes.Interface, about *v1.ObjectReference, times int) error {
	selector := "involvedObject.name=" + about.Name + ",involvedObject.uid=" + string(about.UID)
	var told string
	for range 300 {
		list, err := client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		counted, series := 0, 0
		for _, event := range list.Items {
			switch event.Reason {
			case "Counted":
				counted += int(event.Count)
			case "InSeries":
				if event.Series != nil {
					series = int(event.Series.Count)
				}
			}
		}
		told = fmt.Sprintf("counted %d, in series %d", counted, series)
		if counted == times && series >= 2 {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("not all of %d in a minute: %s", times, told)
}
