"""The official Python client over config maps, as tests/clients/go/cmd/informer is client-go's: the same lines on stdout,
the same orders on stdin. Mode "informer" is the library's SharedInformer, "watch" the loop of a list and
watch.Watch().stream() that most programs have."""

import argparse
import json
import sys
import threading
import time

from kubernetes import client, config, informer, watch

RESTART_AFTER_S = 1

lock = threading.Lock()


def emit(line):
    with lock:
        print(json.dumps(line), flush=True)


def key(obj):
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def item(obj):
    meta = obj.metadata
    return {"key": key(obj), "rv": meta.resource_version, "uid": meta.uid, "data": obj.data}


def without_revision(obj):
    document = obj.to_dict()
    document["metadata"]["resource_version"] = None
    # Items of a list do not bear their kind.
    document["kind"] = document["api_version"] = None
    return document


class Seen:
    """Prints events, and knows whether an object differs from the one before."""

    def __init__(self):
        self.documents = {}

    def has(self, kind, obj):
        line = {"type": kind, **item(obj), "changed": False}
        del line["data"]
        before = self.documents.pop(line["key"], None)
        if kind != "DELETE":
            self.documents[line["key"]] = without_revision(obj)
            line["changed"] = before is not None and before != self.documents[line["key"]]
        emit(line)


class Informer:
    """The library's own."""

    def __init__(self, api, seen):
        self.informer = informer.SharedInformer(api.list_config_map_for_all_namespaces)
        for theirs, ours in ((informer.ADDED, "ADD"), (informer.MODIFIED, "UPDATE"), (informer.DELETED, "DELETE")):
            self.informer.add_event_handler(theirs, lambda obj, ours=ours: seen.has(ours, obj))

    def run(self):
        self.informer.start()
        # It has no word for being synced but a cache that is no longer empty, and that is filled at one stroke.
        while not self.informer.cache.list_keys():
            time.sleep(0.05)
        emit({"type": "SYNCED"})

    def held(self):
        return self.informer.cache.list()


class Loop:
    """What programs write by hand."""

    def __init__(self, api, seen):
        self.list, self.seen, self.objects = api.list_config_map_for_all_namespaces, seen, {}

    def run(self):
        synced, revision = False, None
        while True:
            try:
                if revision is None:
                    revision = self.relist()
                if not synced:
                    synced = True
                    emit({"type": "SYNCED"})
                # With a timeout, the stream ends instead of starting anew from where it began.
                stream = watch.Watch()
                for event in stream.stream(self.list, resource_version=revision, timeout_seconds=15,
                                           allow_watch_bookmarks=True):
                    self.take(event["type"], event["object"])
                    revision = stream.resource_version
            except client.ApiException as error:
                print("watch:", error.status, error.reason, file=sys.stderr, flush=True)
                if error.status == 410:
                    revision = None
                time.sleep(RESTART_AFTER_S)
            except Exception as error:  # urllib3's, of many kinds
                print("watch:", error, file=sys.stderr, flush=True)
                time.sleep(RESTART_AFTER_S)

    def relist(self):
        page = self.list()
        fresh = {key(obj): obj for obj in page.items}
        for gone in [name for name in self.objects if name not in fresh]:
            self.take("DELETED", self.objects[gone])
        for obj in page.items:
            self.take("ADDED", obj)
        return page.metadata.resource_version

    def take(self, kind, obj):
        if kind == "DELETED":
            self.seen.has("DELETE", self.objects.pop(key(obj)))
        elif kind in ("ADDED", "MODIFIED"):
            self.seen.has("UPDATE" if key(obj) in self.objects else "ADD", obj)
            self.objects[key(obj)] = obj

    def held(self):
        return list(self.objects.values())


def pages(api, limit):
    line = {"type": "LIST", "items": [], "revisions": []}
    token = None
    try:
        while True:
            page = api.list_config_map_for_all_namespaces(limit=limit, _continue=token)
            line["items"] += [item(obj) for obj in page.items]
            line["revisions"].append(page.metadata.resource_version)
            # pylint: disable=protected-access
            token = page.metadata._continue
            if not token:
                return line
    except client.ApiException as error:
        return {**line, "error": str(error)}


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--kubeconfig", required=True)
    flags.add_argument("--mode", choices=["informer", "watch"], required=True)
    flags = flags.parse_args()
    config.load_kube_config(flags.kubeconfig)
    api = client.CoreV1Api()
    source = {"informer": Informer, "watch": Loop}[flags.mode](api, Seen())
    threading.Thread(target=source.run, daemon=True).start()
    for text in sys.stdin:
        match text.split():
            case ["dump"]:
                emit({"type": "DUMP", "items": {key(obj): item(obj) for obj in source.held()}})
            case ["list"]:
                emit(pages(api, None))
            case ["pages", size]:
                emit(pages(api, int(size)))
            case _:
                sys.exit(f"no such order: {text}")


main()
