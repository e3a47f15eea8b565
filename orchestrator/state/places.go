package state

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Place is the part of a lease on one node. Events and records contain it as a LeasePlace. Policies refer to nodes by
// index, so they use a cluster.Place. This file converts between them.
type Place struct {
	Node string
	// Devices by index on the node.
	Devices []int32
	// Ended reports that its processes have ended and its devices are free.
	Ended bool
}

// PlacesOf converts the places of an event or a record.
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

// placeRecords converts places for a record.
func placeRecords(places []Place) []*outbidv1.LeasePlace {
	var records []*outbidv1.LeasePlace
	for _, p := range places {
		records = append(records, &outbidv1.LeasePlace{Node: p.Node, Devices: p.Devices, Ended: p.Ended})
	}
	return records
}

// LeasePlaces converts the places of a gang on nodes for an event.
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

// GangOf converts places for policies. index returns the node of a place, and whether the place is included.
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
