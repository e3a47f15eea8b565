package state

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Place is the part of a lease on one node. Events and records say it as a LeasePlace, and policies, which know nodes by
// their index, as a cluster.Place: what turns one into another is in this file.
type Place struct {
	Node string
	// Devices by their index on the node.
	Devices []int32
	// Ended: its processes are gone and its devices free.
	Ended bool
}

// PlacesOf are places as an event or a record says them.
func PlacesOf(said []*outbidv1.LeasePlace) []Place {
	if len(said) == 0 {
		return nil
	}
	places := make([]Place, len(said))
	for i, p := range said {
		places[i] = Place{p.GetNode(), p.GetDevices(), p.GetEnded()}
	}
	return places
}

// placeRecords are places as a record says them.
func placeRecords(places []Place) []*outbidv1.LeasePlace {
	var records []*outbidv1.LeasePlace
	for _, p := range places {
		records = append(records, &outbidv1.LeasePlace{Node: p.Node, Devices: p.Devices, Ended: p.Ended})
	}
	return records
}

// LeasePlaces are the places of a gang on nodes, as an event says them.
func LeasePlaces(nodes []cluster.Node, gang cluster.Gang) []*outbidv1.LeasePlace {
	places := make([]*outbidv1.LeasePlace, len(gang))
	for i, p := range gang {
		places[i] = &outbidv1.LeasePlace{Node: nodes[p.Node].Name, Devices: make([]int32, len(p.Devices))}
		for k, d := range p.Devices {
			places[i].Devices[k] = int32(d)
		}
	}
	return places
}

// GangOf is what places are to policies: index says which node one is on, and whether it is to count.
func GangOf(places []Place, index func(Place) (node int, counts bool)) cluster.Gang {
	var g cluster.Gang
	for _, p := range places {
		if i, counts := index(p); counts {
			g = append(g, gangPlace(i, p))
		}
	}
	return g
}

func gangPlace(node int, p Place) cluster.Place {
	place := cluster.Place{Node: node, Devices: make([]int, len(p.Devices))}
	for k, d := range p.Devices {
		place.Devices[k] = int(d)
	}
	return place
}
