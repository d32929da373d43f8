// Command kubelet is as much of a kubelet as streams need: it runs what is exec'ed on this machine, echoes what is
// attached to or forwarded, and says on stdout what begins and ends.
//
//	kubelet -listen 127.0.0.1:10250 -cert server.crt -key server.key -egress egress.sock
//
// A kube-apiserver proxies to no loopback address. With an egress selector it asks a proxy at a socket for every node, pod
// and service, whatever their addresses; that is here, and always leads to the kubelet.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second

	// An aggregated API that serves nothing but a subresource of objects of another group.
	consoles         = "/apis/consoles.e2e.kubefold.io/v1"
	consolesDocument = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"consoles.e2e.kubefold.io/v1","resources":[` +
		`{"name":"gadgets/console","singularName":"","namespaced":true,"kind":"Gadget","verbs":["get"]}]}`
	tick = 50 * time.Millisecond
)

func main() {
	listen := flag.String("listen", "127.0.0.1:10250", "address")
	cert := flag.String("cert", "", "certificate")
	key := flag.String("key", "", "its key")
	socket := flag.String("egress", "", "socket of the proxy")
	flag.Parse()
	go egress(*socket, *listen)
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", servePortForward)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/say", say)
	// Not behind the mux, which would clean the path of a request.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/raw" || strings.Contains(r.URL.Path, "/console/"):
			raw(w, r)
		case r.URL.Path == consoles:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, consolesDocument)
		case strings.HasPrefix(r.URL.Path, "/mirror"):
			mirror(w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
	server := &http.Server{Addr: *listen, Handler: handler}
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}

// egress answers every CONNECT with a connection to one address.
func egress(socket, address string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer client.Close()
			buffered := bufio.NewReader(client)
			if request, err := http.ReadRequest(buffered); err != nil || request.Method != http.MethodConnect {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer server.Close()
			fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
			ended := make(chan struct{}, 2)
			pass := func(to io.Writer, from io.Reader) {
				_, _ = io.Copy(to, from)
				ended <- struct{}{}
			}
			go pass(server, buffered)
			go pass(client, server)
			<-ended
		}()
	}
}

// logs gives one line; followed, it goes on until nobody listens.
func logs(w http.ResponseWriter, r *http.Request) {
	pod, query := r.PathValue("pod"), r.URL.Query()
	flusher := w.(http.Flusher)
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "log of %s/%s in %s limit=%s since=%s\n", r.PathValue("namespace"), pod, r.PathValue("container"),
		query.Get("limitBytes"), query.Get("sinceTime"))
	flusher.Flush()
	if query.Get("follow") != "true" {
		return
	}
	fmt.Printf("log of %s begins\n", pod)
	defer fmt.Printf("log of %s ends\n", pod)
	for number := 0; ; number++ {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(tick):
		}
		if _, err := fmt.Fprintf(w, "line %d\n", number); err != nil {
			return
		}
		flusher.Flush()
	}
}

type runtime struct{}

// ExecInContainer runs the command on this machine; `sizes` tells the sizes of its terminal instead.
func (runtime) ExecInContainer(ctx context.Context, name, _, _ string, cmd []string, in io.Reader, out, err io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	fmt.Printf("exec in %s begins\n", name)
	defer fmt.Printf("exec in %s ends\n", name)
	if len(cmd) == 1 && cmd[0] == "sizes" {
		size := <-resize
		_, failed := fmt.Fprintf(out, "%dx%d\r\n", size.Width, size.Height)
		return failed
	}
	command := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	command.Stdout, command.Stderr = out, err
	if in != nil {
		// Not as its Stdin: it may end without reading to the end.
		pipe, failed := command.StdinPipe()
		if failed != nil {
			return failed
		}
		go func() {
			defer pipe.Close()
			_, failed := io.Copy(pipe, in)
			fmt.Printf("stdin of %s ends: %v\n", name, failed)
			if failed != nil && command.Process != nil {
				_ = command.Process.Kill()
			}
		}()
	}
	failed := command.Run()
	if exit, ok := failed.(*exec.ExitError); ok {
		return &utilexec.ExitErrorWrapper{ExitError: exit}
	}
	return failed
}

// AttachContainer echoes.
func (runtime) AttachContainer(_ context.Context, name, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	fmt.Printf("attach to %s begins\n", name)
	defer fmt.Printf("attach to %s ends\n", name)
	if _, err := fmt.Fprintf(out, "attached to %s\n", name); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward is an HTTP server at port 80 and an echo at any other.
func (runtime) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	fmt.Printf("port-forward to %s begins\n", name)
	defer fmt.Printf("port-forward to %s ends\n", name)
	defer stream.Close()
	if port != 80 {
		_, err := io.Copy(stream, stream)
		return err
	}
	request, err := http.ReadRequest(bufio.NewReader(stream))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s %s at %s", request.Method, request.URL, name)
	_, err = fmt.Fprintf(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

func serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, runtime{}, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"],
		options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, runtime{}, r.PathValue("pod"), "", r.PathValue("container"), options, idleTimeout,
		creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, runtime{}, r.PathValue("pod"), "", options, idleTimeout, creationTimeout,
		portforward.SupportedProtocols)
}

// mirror tells what it was asked.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Mirror", "yes")
	fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
}

// say answers with a code and a body of the caller's choice.
func say(w http.ResponseWriter, r *http.Request) {
	code := http.StatusOK
	fmt.Sscan(r.URL.Query().Get("code"), &code)
	w.Header().Set("Content-Type", r.URL.Query().Get("type"))
	w.WriteHeader(code)
	fmt.Fprint(w, r.URL.Query().Get("body"))
}

// raw echoes bytes after an upgrade to a protocol of nobody's, upper-cased, to the end of what comes in; then it says so.
func raw(w http.ResponseWriter, r *http.Request) {
	connection, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer connection.Close()
	fmt.Printf("raw at %s begins\n", r.URL.Path)
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	buffer := make([]byte, 4096)
	for {
		read, err := buffered.Read(buffer)
		if _, failed := connection.Write([]byte(strings.ToUpper(string(buffer[:read])))); failed != nil || err != nil {
			fmt.Println("raw ends")
			return
		}
	}
}
