# Swallowed weight updates. Two blocks of the data per cell: octave of |w|/|dw|, percent, percent lost; then
# layer's row, from step, to step, percent lost; -1 where no update was a number other than 0.
first_top = 100.0
panel_height = (height - first_top - 8.0) / panels
left = 64
middle = 560
names = 130
set multiplot
set key off
unset grid
set palette defined (0 '#fee8a8', 1 '#fec44f', 2 '#ec7014', 3 '#a03a04', 4 '#3d1300')
set logscale cb
set cbrange [0.01:100]
set colorbox horizontal user origin screen px(width - 324), screen py(30) \
    size screen px(300), screen 1 - py(9)
set cbtics ('0.01 %%' 0.01, '0.1 %%' 0.1, '1 %%' 1, '10 %%' 10, '100 %%' 100) scale 0.4 offset 0,0.5 \
    font tiny_font
set label 1 'Swallowed weight updates: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 'left: updates by |w| / |dw|, red: swallowed when the weight was stored; right: share by layer;' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set label 3 'grey: none; blue: not probed; pink: no update was a number other than 0' \
    at screen px(24), screen py(60) noenhanced font small_font textcolor rgb soft
set boxwidth 0.9
do for [i = 1:panels] {
    top = first_top + (i - 1) * panel_height
    set tmargin at screen py(top)
    set bmargin at screen py(top + panel_height - 52)
    set lmargin at screen px(left)
    set rmargin at screen px(middle)
    set xrange [low:high]
    set xtics 4
    set format x '2^{%g}'
    set yrange [0:top_percent[i] * 1.2]
    set ytics nomirror 0, (top_percent[i] > 40 ? 20 : top_percent[i] > 20 ? 10 : 5) font tiny_font
    set ytics textcolor rgb ink
    set format y '%g %%'
    set label 9 (i == panels ? '|w| / |dw|' : '') at graph 0.5, screen py(height - 14) center noenhanced \
        font small_font textcolor rgb soft
    set object 90 rectangle center screen px(69), screen py(top - 11) size screen px(9), screen 1 - py(9) \
        fillcolor rgb level(color_of[i]) fillstyle solid noborder
    set label 10 title[i] at screen px(80), screen py(top - 11) noenhanced font panel_font textcolor rgb ink
    set label 11 note[i] at screen px(width - 24), screen py(top - 11) right noenhanced font small_font \
        textcolor rgb soft
    set label 13 nothing[i] at graph 0.5, graph 0.5 center noenhanced font small_font textcolor rgb soft
    if (line[i] > 0) {
        set arrow 1 from line[i], graph 0 to line[i], graph 1 nohead linecolor rgb vermillion linewidth 1.5
        set label 12 power(line[i]) at line[i], graph 0.9 left offset 0.5,0 noenhanced font tiny_font \
            textcolor rgb vermillion
    } else {
        unset arrow 1
        unset label 12
    }
    plot data index 2*(i-1) using ($1 + 0.5):2 with boxes fillcolor rgb blue fillstyle solid 0.45 noborder, \
         data index 2*(i-1) using ($1 + 0.5):3 with boxes fillcolor rgb vermillion fillstyle solid 1 noborder
    unset label 1; unset label 2; unset label 3; unset label 10; unset label 11; unset label 12
    unset label 13; unset arrow 1; unset object 90
    set lmargin at screen px(middle + names)
    set rmargin at screen px(width - 24)
    set xrange [0:steps]
    set xtics autofreq
    set format x '%g'
    set yrange [layers[i] + 0.5:0.5]
    unset ytics
    set label 9 (i == panels ? 'step' : '') at graph 0.5, screen py(height - 14) center noenhanced \
        font small_font textcolor rgb soft
    set label 12 sentence[i] at graph 0.01, graph 0.5 left noenhanced font small_font textcolor rgb soft
    unset for [k = 100:140] label k
    if (sentence[i] eq '') {
        every = ceil(layers[i] / 12.0)
        do for [k = 1:layers[i]:every] {
            set label 100+k layer[first_layer[i] + k] at graph 0, first k right offset -0.8,0 noenhanced \
                font tiny_font textcolor rgb ink
        }
        set object 1 rectangle from first 0, graph 0 to first trained[i], graph 1 behind \
            fillcolor rgb '#cfe6f7' fillstyle solid noborder
    }
    plot data index 2*i-1 using ($4 < 0 ? 0.5*($2+$3) : NaN):1:(0.5*($3-$2)):(0.46) with boxxyerror \
        fillcolor rgb '#f2c9dc' fillstyle solid 1 noborder, \
         data index 2*i-1 using ($4 < 0 ? NaN : 0.5*($2+$3)):1:(0.5*($3-$2)):(0.46) with boxxyerror \
        fillcolor rgb '#dde3e8' fillstyle solid 1 noborder, \
         data index 2*i-1 using ($4 > 0 ? 0.5*($2+$3) : NaN):1:(0.5*($3-$2)):(0.46):($4 < 0.01 ? 0.01 : $4) \
         with boxxyerror fillcolor palette fillstyle solid 1 noborder
    unset for [k = 100:140] label k
    unset label 12; unset object 1
    unset colorbox
}
unset multiplot
